"""The actor of a change, and the change's audit log entry."""

from typing import Literal

import msgspec


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the audit table, in column order. Created by `Actor.audit_entry`, so that every change has an actor."""

    at: int
    actor: str
    team: str | None
    action: str  # such as key.create
    subject: str
    detail: str
    address: str


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """A dashboard user, an API key, the command line, or the service itself."""

    kind: Literal["person", "key", "command line", "service"]
    id: str = ""  # id of the person or key
    address: str = ""  # client address

    @property
    def name(self) -> str:
        """Return the actor's name in the audit log; a person's id is displayed as the email address."""
        return self.id if self.kind == "person" else f"{self.kind} {self.id}".strip()

    def audit_entry(
        self, at: int, action: str, subject: str, detail: str = "", *, team: str | None = None
    ) -> AuditEntry:
        return AuditEntry(
            at=at, actor=self.name, team=team, action=action, subject=subject, detail=detail, address=self.address
        )


COMMAND_LINE = Actor(kind="command line")
SERVICE = Actor(kind="service")
