-- Delivery attempts per carrier and minute, over all processes.

-- name: count_carrier_use
-- Add delivery attempts to the counters per carrier, minute and process.
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
-- Return the counters per carrier and minute.
SELECT carrier, minute, CAST(sum(accepted) AS BIGINT), CAST(sum(refused) AS BIGINT), CAST(sum(put_off) AS BIGINT),
       CAST(sum(took_ms) AS BIGINT)
FROM carrier_use WHERE minute >= :since GROUP BY carrier, minute;

-- name: carrier_use_since
-- Return the totals per carrier since a time.
SELECT carrier, CAST(sum(accepted) AS BIGINT), CAST(sum(refused) AS BIGINT), CAST(sum(put_off) AS BIGINT),
       CAST(sum(took_ms) AS BIGINT)
FROM carrier_use
INDEXED BY carrier_use_by_minute  --sqlite
WHERE minute >= :since GROUP BY carrier;

-- name: accepting_carriers
-- Return the carriers that accepted a message or a test since a time.
SELECT DISTINCT carrier
FROM carrier_use
INDEXED BY carrier_use_by_minute  --sqlite
WHERE minute >= :since AND (accepted > 0 OR seat = :test);

-- name: record_callback
-- Record the time of a carrier's callback, if the last recorded one is at least `rest` ms older.
INSERT INTO carrier_callback (carrier, last_at) VALUES (:carrier, :at)
ON CONFLICT (carrier) DO UPDATE SET last_at = excluded.last_at
WHERE carrier_callback.last_at + :rest <= excluded.last_at;

-- name: last_callbacks
-- Return the time of the last callback of each carrier.
SELECT carrier, last_at FROM carrier_callback;

-- name: purge_carrier_use
-- Delete a batch of old counters.
DELETE FROM carrier_use WHERE (carrier, minute, seat) IN (
    SELECT carrier, minute, seat FROM carrier_use WHERE minute <= :before ORDER BY minute LIMIT :limit) RETURNING 1;
