"""Telling events to a team's own endpoints: signed, and only where a stranger may send us."""
