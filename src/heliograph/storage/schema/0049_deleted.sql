-- Where a deleted suppression stood on its list, for a page that ended with it.
CREATE INDEX event_deleted ON event (team, subject, id) WHERE type = 'suppression.deleted';
