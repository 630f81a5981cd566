-- The carriers that cannot be reached. Each change is only made to the circuit that was seen.

-- name: open_circuits
SELECT body FROM circuit;

-- name: open_circuit
INSERT INTO circuit (carrier, body) VALUES (:carrier, :body) ON CONFLICT (carrier) DO NOTHING RETURNING 1;

-- name: extend_circuit
UPDATE circuit SET body = :body WHERE carrier = :carrier AND body = :seen RETURNING 1;

-- name: close_circuit
DELETE FROM circuit WHERE carrier = :carrier AND body = :seen RETURNING 1;
