-- Rates, tokens and connections per carrier, mailbox provider and source address.

-- name: insert_provider_states
-- Create states that do not exist yet.
INSERT INTO provider_state (carrier, provider, source, body)
SELECT carrier, provider, source, '{}' FROM rows(:keys, carrier text, provider text, source text) AS r WHERE true
ON CONFLICT (carrier, provider, source) DO NOTHING;

-- name: lock_provider_states
-- Lock and return states, in one order, so that two transactions cannot deadlock.
SELECT s.carrier, s.provider, s.source, s.body
FROM rows(:keys, carrier text, provider text, source text) AS r
JOIN provider_state s ON s.carrier = r.carrier AND s.provider = r.provider AND s.source = r.source
ORDER BY s.carrier, s.provider, s.source
FOR UPDATE OF s  --postgres
;

-- name: update_provider_states
-- Replace states.
UPDATE provider_state SET body = r.body
FROM rows(:states, carrier text, provider text, source text, body text) AS r
WHERE provider_state.carrier = r.carrier AND provider_state.provider = r.provider
  AND provider_state.source = r.source;

-- name: provider_states
-- Return all states.
SELECT carrier, provider, source, body FROM provider_state ORDER BY carrier, provider, source;
