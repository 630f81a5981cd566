"""Postal's API: a file for each of its subjects."""
