-- The suppression list of the dashboard: newest first, searched in batches of :scan entries.

-- name: search_suppressions
-- Return suppressions whose address contains `text`, within the next :scan entries.
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
-- Return the last of the next :scan entries and their number.
WITH seen AS (
    SELECT created_at, address FROM suppression WHERE team = :team AND (created_at, address) < (:at, :before)
    ORDER BY created_at DESC, address DESC LIMIT :scan
)
SELECT created_at, address, (SELECT count(*) FROM seen) FROM seen ORDER BY created_at, address LIMIT 1;
