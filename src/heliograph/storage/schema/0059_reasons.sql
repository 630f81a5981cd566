-- Machine-readable reason beside the text for people; NULL: no reason, or a row older than this column.
ALTER TABLE attempt ADD COLUMN reason TEXT;
ALTER TABLE verification ADD COLUMN reason TEXT;
