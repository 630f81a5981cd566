"""Accepts requests: validate, decide, write durably, respond. One module per endpoint."""
