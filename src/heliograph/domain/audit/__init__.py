"""Actors, audit entries and the hash chain of the audit log."""
