-- Dead letters: recipients whose workers died with them, until an operator tries them again or drops them.
CREATE INDEX recipient_dead ON recipient (message, position) WHERE substr(detail, 1, 23) = '{"reason":"quarantined"';
