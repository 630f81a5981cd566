"""The HTTP API: parses requests, calls use cases, encodes responses.

It uses no web framework, because the routing of a framework alone would halve the throughput.
"""
