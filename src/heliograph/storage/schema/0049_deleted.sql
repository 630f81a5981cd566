-- For a cursor that refers to a deleted suppression: finds its position in the list.
CREATE INDEX event_deleted ON event (team, subject, id) WHERE type = 'suppression.deleted';
