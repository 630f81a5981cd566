"""Converts audit entries to the format of the API and of `heliograph audit export`."""

from typing import Annotated

import msgspec

from heliograph.domain.field_docs import TIME, ObjectName, describe
from heliograph.domain.ids import timestamp
from heliograph.storage.audit import AuditRow


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "audit_entry"
    id: Annotated[int, describe("Its number: higher ones were written later.", example=1042)]
    at: Annotated[str, describe("When it was written.", example="2026-11-15T09:30:00.000Z", **TIME)]
    by: Annotated[
        str,
        describe(
            "Who made the change: a person's id, `key` with a key's id, `command line` or `service`.", example="service"
        ),
    ]
    email: Annotated[str | None, describe("The person's address; null: not a person, or one who was removed.")]
    team: Annotated[str | None, describe("The team that was changed; null: the whole instance.", example="team_demo")]
    action: Annotated[str, describe("What was done, for example `key.create`.", example="key.create")]
    subject: Annotated[str, describe("What was changed.", example="server")]
    detail: Annotated[str, describe("More about it.", example="4fTzQ8kW1b")]
    address: Annotated[
        str, describe("The IP address that the change came from; empty: not over the network.", example="")
    ]


def to_record(row: AuditRow) -> AuditRecord:
    return AuditRecord(
        id=row.key,
        at=timestamp(row.at),
        by=row.actor_name,
        email=row.email,
        team=row.team,
        action=row.action,
        subject=row.subject,
        detail=row.detail,
        address=row.address,
    )
