"""Imports from other email and SMS services: parses the data exported there into our records."""
