"""Trigrams of the message search index."""
