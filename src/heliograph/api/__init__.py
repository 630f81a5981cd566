"""The HTTP edge: parse, call, serialise. Plain ASGI, because a framework's routing costs half of the throughput."""
