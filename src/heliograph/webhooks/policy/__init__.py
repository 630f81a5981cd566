"""Decisions about events: their bodies, formats, signatures and retries."""
