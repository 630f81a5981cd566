-- What the program branches on, beside the words that people read; NULL: there is none, or it is older than this.
ALTER TABLE attempt ADD COLUMN reason TEXT;
ALTER TABLE verification ADD COLUMN reason TEXT;
