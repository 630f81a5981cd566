"""SMTP submission server: accepts mail from SMTP clients; calls the same use case as POST /v1/emails."""
