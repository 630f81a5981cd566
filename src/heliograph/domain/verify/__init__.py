"""Decisions about one-time codes."""
