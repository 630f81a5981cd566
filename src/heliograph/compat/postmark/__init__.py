"""Postmark's API, with one module per resource."""
