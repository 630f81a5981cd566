"""What every request to a webhook says of itself, whatever it tells."""

HEADERS = {"Content-Type": "application/json", "User-Agent": "Heliograph-Webhooks/1"}
