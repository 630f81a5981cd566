-- For the event feed, which reads a team's events in key order.
CREATE INDEX event_feed ON event (team, key) WHERE sequence IS NOT NULL;
