"""Message search: trigram index, queries, result pages."""
