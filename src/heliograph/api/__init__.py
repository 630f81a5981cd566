"""The HTTP API: parses requests, calls use cases, serialises responses.

No web framework is used, because its routing alone would halve the throughput.
"""
