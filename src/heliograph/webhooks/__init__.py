"""Webhooks: events' formats, signatures, retries, delivery and endpoint management."""
