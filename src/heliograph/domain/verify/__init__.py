"""Rules of one-time codes."""
