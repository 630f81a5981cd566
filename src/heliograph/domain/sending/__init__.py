"""Rules for accepting a message: options, prices, idempotency, batches."""
