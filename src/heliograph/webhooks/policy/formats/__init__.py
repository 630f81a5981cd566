"""The formats in which webhooks are told events: our own, and those of other services."""
