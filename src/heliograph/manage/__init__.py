"""People change things: who asks, whether they may, the change and its audit entry in one transaction."""
