"""Imports from other services: parses their exports into our records."""
