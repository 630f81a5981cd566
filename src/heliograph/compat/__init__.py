"""Compatibility APIs: each package or module implements another service's API with the use cases of /v1."""
