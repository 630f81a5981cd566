"""Rules of accepting a message: options, prices, idempotency, batches."""
