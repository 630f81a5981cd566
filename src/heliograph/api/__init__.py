"""The HTTP API: parses requests, calls use cases, encodes responses.

Without a web framework, whose routing alone would halve the throughput.
"""
