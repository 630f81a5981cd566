-- Hand-overs by carrier and minute, of all processes together.

-- name: count_carrier_use
INSERT INTO carrier_use (carrier, minute, seat, accepted, refused, put_off, took_ms)
SELECT carrier, minute, seat, accepted, refused, put_off, took_ms
FROM rows(:uses, carrier text, minute bigint, seat text, accepted bigint, refused bigint, put_off bigint,
          took_ms bigint) AS r
WHERE true
ON CONFLICT (carrier, minute, seat) DO UPDATE SET accepted = carrier_use.accepted + excluded.accepted,
                                                  refused = carrier_use.refused + excluded.refused,
                                                  put_off = carrier_use.put_off + excluded.put_off,
                                                  took_ms = carrier_use.took_ms + excluded.took_ms;

-- name: carrier_use_by_minute
SELECT carrier, minute, CAST(sum(accepted) AS BIGINT), CAST(sum(refused) AS BIGINT), CAST(sum(put_off) AS BIGINT),
       CAST(sum(took_ms) AS BIGINT)
FROM carrier_use WHERE minute >= :since GROUP BY carrier, minute;

-- name: carrier_use_since
SELECT carrier, CAST(sum(accepted) AS BIGINT), CAST(sum(refused) AS BIGINT), CAST(sum(put_off) AS BIGINT),
       CAST(sum(took_ms) AS BIGINT)
FROM carrier_use
INDEXED BY carrier_use_by_minute  --sqlite
WHERE minute >= :since GROUP BY carrier;

-- name: carriers_that_answered
SELECT DISTINCT carrier
FROM carrier_use
INDEXED BY carrier_use_by_minute  --sqlite
WHERE minute >= :since AND (accepted > 0 OR seat = :test);

-- name: note_callback
INSERT INTO carrier_callback (carrier, last_at) VALUES (:carrier, :at)
ON CONFLICT (carrier) DO UPDATE SET last_at = excluded.last_at
WHERE carrier_callback.last_at + :rest <= excluded.last_at;

-- name: last_callbacks
SELECT carrier, last_at FROM carrier_callback;

-- name: purge_carrier_use
DELETE FROM carrier_use WHERE (carrier, minute, seat) IN (
    SELECT carrier, minute, seat FROM carrier_use WHERE minute <= :before ORDER BY minute LIMIT :limit) RETURNING 1;
