"""Network rules: client addresses behind proxies, blocked networks (SSRF), trace context."""
