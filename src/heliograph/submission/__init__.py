"""SMTP submission server: accepts mail from SMTP clients with the same use case as the API."""
