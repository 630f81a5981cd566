"""Trigram index of the message search."""
