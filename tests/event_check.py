"""Checks all events that tests publish against their schemas, when a test has finished with its database."""

import functools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import apsw
import jsonschema_rs
import msgspec

from heliograph.api.event_schemas import event_schema
from heliograph.domain.events import StoredEvent, event_body
from heliograph.domain.setup.records import Team
from heliograph.texts.explain import with_explanation

# Like the query `feed` of queries/events.sql, but for all teams.
PUBLISHED = """
SELECT e.id, e.type, e.sequence, e.created_at, e.recipient, e.status, e.previous_status, e.message_status,
       coalesce(e.detail, x.record), m.record, m.sandbox, r.kind
FROM event e
LEFT JOIN message m ON m.key = e.message
LEFT JOIN recipient r ON r.message = e.message AND r.given = e.recipient
LEFT JOIN received x ON e.detail IS NULL AND x.id = e.subject
WHERE e.sequence IS NOT NULL
"""
TEAM = cast(Team, SimpleNamespace(record=SimpleNamespace(id="team_any"), sandbox=False))


def check_file(path: Path) -> None:
    """Check the events of an SQLite database."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        check_rows(connection.execute(PUBLISHED).fetchall())
    finally:
        connection.close()


def check_rows(rows: Sequence[Sequence[Any]]) -> None:
    events = [StoredEvent(*row) for row in rows]
    wrong = [fault for event in events if (fault := find_fault(event))]
    assert not wrong, f"events that are not as GET /v1/events/schema says: {wrong}"


def find_fault(event: StoredEvent) -> str | None:
    """Return why an event does not match the schema of its type; None if it does."""
    body = msgspec.json.decode(event_body(with_explanation(event), TEAM))
    errors = [
        f"{'.'.join(map(str, error.instance_path))}: {error.message[:200]}"
        for error in validators()[event.type].iter_errors(body)
    ]
    return f"{event.type} {event.id}: {errors}" if errors else None


@functools.cache
def validators() -> dict[str, jsonschema_rs.Draft202012Validator]:
    schemas = event_schema()["$defs"]
    return {name: jsonschema_rs.Draft202012Validator(schema) for name, schema in schemas.items()}
