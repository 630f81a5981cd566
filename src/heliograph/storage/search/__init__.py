"""Search of messages: trigram index, queries, result pages."""
