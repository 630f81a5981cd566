-- The pull feed reads a team's events in the order of their keys.
CREATE INDEX event_feed ON event (team, key) WHERE sequence IS NOT NULL;
