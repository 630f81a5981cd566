"""Headers of every webhook request."""

HEADERS = {"User-Agent": "Heliograph-Webhooks/1"}
