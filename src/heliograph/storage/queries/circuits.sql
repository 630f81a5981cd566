-- Circuit breakers of unreachable carriers. Updates apply only if the circuit is still the one that was read.

-- name: open_circuits
-- Return all open circuits.
SELECT body FROM circuit;

-- name: open_circuit
-- Open a circuit; returns no row if another process has already opened it.
INSERT INTO circuit (carrier, body) VALUES (:carrier, :body) ON CONFLICT (carrier) DO NOTHING RETURNING 1;

-- name: extend_circuit
-- Update an open circuit, if it was not changed since it was read.
UPDATE circuit SET body = :body WHERE carrier = :carrier AND body = :seen RETURNING 1;

-- name: close_circuit
-- Close a circuit, if it was not changed since it was read.
DELETE FROM circuit WHERE carrier = :carrier AND body = :seen RETURNING 1;
