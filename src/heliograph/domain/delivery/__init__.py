"""Delivery decisions: message states, outcomes, retries, circuit breakers, carrier routing."""
