"""Steps shared by all use cases that change the setup: validation, quotas, audited writes, and decision notices."""
