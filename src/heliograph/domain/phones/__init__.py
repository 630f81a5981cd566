"""Decisions about phones: numbers, segments, texts that come in, opting out."""
