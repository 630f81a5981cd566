"""Steps shared by all use cases that change the setup."""
