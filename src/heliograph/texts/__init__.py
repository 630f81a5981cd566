"""User-facing texts for the named decisions of `domain/`: explanations, notices, advice, links. Pure code."""
