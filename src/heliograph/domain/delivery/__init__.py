"""Decisions about handing over: states, outcomes, retries, circuits, routes."""
