-- The trace that a message belongs to: the traceparent of the request that sent it.
ALTER TABLE message ADD COLUMN trace TEXT;
