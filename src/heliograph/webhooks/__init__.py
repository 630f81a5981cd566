"""Webhooks: event formats, signatures, retries, delivery and endpoint management."""
