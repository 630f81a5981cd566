"""What every request to a webhook says of itself, whatever it tells."""

HEADERS = {"User-Agent": "Heliograph-Webhooks/1"}
