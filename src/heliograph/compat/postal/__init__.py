"""Postal's API, with one module per resource."""
