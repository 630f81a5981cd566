"""Webhook event formats: Heliograph's own and those of other services."""
