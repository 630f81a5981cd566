"""Compatibility APIs: each package or module implements the API of another service with our use cases."""
