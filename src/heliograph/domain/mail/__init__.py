"""Decisions about email: addresses, attachments, foreign MIME, what comes back."""
