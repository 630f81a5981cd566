"""Who makes a change, and the entry of it in the audit log."""

from typing import Literal

import msgspec


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table, in the order of its columns. Made by `Actor.did`: there is no change without an actor."""

    at: int
    actor: str
    team: str | None
    action: str  # such as key.create
    subject: str
    detail: str
    address: str


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """A person of the dashboard, an API key, the command line, or the service itself."""

    kind: Literal["person", "key", "command line", "service"]
    id: str = ""  # of the person or key
    address: str = ""  # where they came from

    @property
    def name(self) -> str:
        """Name the actor as the audit log has it; a person's id is shown as the email address."""
        return self.id if self.kind == "person" else f"{self.kind} {self.id}".strip()

    def did(self, at: int, action: str, subject: str, detail: str = "", *, team: str | None = None) -> AuditEntry:
        return AuditEntry(
            at=at, actor=self.name, team=team, action=action, subject=subject, detail=detail, address=self.address
        )


COMMAND_LINE = Actor(kind="command line")
SERVICE = Actor(kind="service")
