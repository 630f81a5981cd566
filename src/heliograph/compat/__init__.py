"""Compatibility APIs: each package or module translates the API of another service to the use cases of /v1."""
