"""SMTP submission: mails of programs that speak SMTP alone, into the same use case as the API."""
