-- The suppression list as the dashboard reads it: newest first, searched over :scan entries at a time.

-- name: search_suppressions
WITH seen AS (
    SELECT created_at, address FROM suppression WHERE team = :team AND (created_at, address) < (:at, :before)
    ORDER BY created_at DESC, address DESC LIMIT :scan
)
SELECT s.address, s.email, s.reason, s.source_message_id, s.created_at
FROM seen JOIN suppression s ON s.team = :team AND s.address = seen.address
WHERE instr(seen.address, :text) > 0  --sqlite
WHERE strpos(seen.address, :text) > 0  --postgres
ORDER BY s.created_at DESC, s.address DESC LIMIT :limit;

-- name: searched_suppressions_end
WITH seen AS (
    SELECT created_at, address FROM suppression WHERE team = :team AND (created_at, address) < (:at, :before)
    ORDER BY created_at DESC, address DESC LIMIT :scan
)
SELECT created_at, address, (SELECT count(*) FROM seen) FROM seen ORDER BY created_at, address LIMIT 1;
