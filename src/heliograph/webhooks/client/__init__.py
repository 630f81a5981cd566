"""HTTP client for webhook deliveries: signed requests, protected against SSRF."""
