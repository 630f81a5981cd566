-- Citus moves a table under load by logical replication, which needs a key for updates and deletions.
ALTER TABLE decision REPLICA IDENTITY FULL;  --postgres
