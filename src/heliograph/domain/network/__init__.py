"""Rules of addresses and headers: proxies, blocked networks (SSRF), trace context."""
