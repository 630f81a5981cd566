-- Recipients who unsubscribed from a category of a team's emails.

-- name: find_unsubscribed
-- Return those of these (team, address, category) triples that are unsubscribed.
SELECT u.team, u.address, u.category FROM rows(:recipients, team bigint, address text, category text) AS r
JOIN unsubscribe u ON u.team = r.team AND u.address = r.address AND u.category = r.category;

-- name: find_unsubscribes
-- Return the unsubscribed categories of an address.
SELECT address, category, reason, created_at FROM unsubscribe WHERE team = :team AND address = :address
ORDER BY category;

-- name: list_unsubscribes
-- Return a page of entries, newest first, after the last row (time, address, category) of the previous page.
SELECT address, category, reason, created_at FROM unsubscribe
WHERE team = :team AND (created_at, address, category) < (:at, :address, :category)
ORDER BY created_at DESC, address DESC, category DESC LIMIT :limit;

-- name: insert_unsubscribe
-- Insert an entry and return it if it is new.
INSERT INTO unsubscribe (team, address, category, reason, created_at)
VALUES (:team, :address, :category, :reason, :created_at)
ON CONFLICT (team, address, category) DO NOTHING
RETURNING address, category, reason, created_at;

-- name: delete_unsubscribes
-- Delete and return the entry of an address in a category; all of its entries if `category` is empty.
DELETE FROM unsubscribe WHERE team = :team AND address = :address AND (category = :category OR :category = '')
RETURNING address, category, reason, created_at;

-- name: deleted_unsubscribes
-- Return the data of deleted entries of an address, because a cursor may refer to a deleted entry.
SELECT detail FROM event WHERE team = :team AND subject = :address AND type = 'recipient.resubscribed'
ORDER BY id DESC LIMIT 100;

-- name: message_category
-- Return the team, category and recipient of an email with a category.
-- The caller does not know the team: see find_recipient.
SELECT m.team, m.category, r.address FROM account a
CROSS JOIN message m ON m.team = a.team AND m.id = :id AND m.category IS NOT NULL  --sqlite
JOIN message m ON m.team = a.team AND m.id = :id AND m.category IS NOT NULL        --postgres
JOIN recipient r ON r.message = m.key AND r.position = 0;
