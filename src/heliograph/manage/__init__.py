"""Use cases that change data for people and API keys: authorise, then write the change and its audit entry together."""
