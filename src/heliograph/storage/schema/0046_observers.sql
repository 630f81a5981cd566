-- 1: a read-only operator, who sees all that an operator sees. Versions before know nobody but operators.
ALTER TABLE person ADD COLUMN observer SMALLINT NOT NULL DEFAULT 0;
