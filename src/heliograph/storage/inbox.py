"""The inbox in the store: what simulators delivered to a team since it was last cleared."""

from collections.abc import Iterable

import msgspec

from heliograph.rules.audit import AuditEntry
from heliograph.storage.engine.database import Tx

SCAN = 2000  # records that one page looks at, so that it is quick also when few of them are the inbox's


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a team's inbox is looked at: ids in (low, high), newest first."""

    team: int
    low: str
    high: str
    text: str = ""  # lower-case; empty: all
    limit: int = 50


class InboxLine(msgspec.Struct, frozen=True):
    id: str
    status: str
    created_at: int
    summary: str
    recipient: str
    recipients: int


class CodeLine(msgspec.Struct, frozen=True):
    id: str
    phone: str
    status: str
    created_at: int
    magic: int  # 1: a magic number, whose code is known


class InboxRecipient(msgspec.Struct, frozen=True):
    given: str
    kind: str
    status: str


class InboxItem(msgspec.Struct, frozen=True, kw_only=True):
    channel: str
    status: str
    sandbox: int
    created_at: int
    template_id: str | None
    content: str | None  # None: retention has taken it
    recipients: list[InboxRecipient]


async def messages(tx: Tx, span: Span, carriers: Iterable[str]) -> tuple[list[InboxLine], str | None]:
    """A page, and the id to go on before; None: there is no more."""
    given = _given(span) | {"carriers": [(id_,) for id_ in carriers]}
    rows = await tx.run("inbox_messages", text=span.text, limit=span.limit + 1, **given)
    lines = [InboxLine(*row) for row in rows]
    return lines[: span.limit], await _next(tx, "inbox_messages_end", span, [line.id for line in lines])


async def codes(tx: Tx, span: Span, now: int) -> tuple[list[CodeLine], str | None]:
    rows = await tx.run("inbox_codes", text=span.text, limit=span.limit + 1, now=now, **_given(span))
    lines = [CodeLine(*row) for row in rows]
    return lines[: span.limit], await _next(tx, "inbox_codes_end", span, [line.id for line in lines])


async def item(tx: Tx, team: int, id_: str, carriers: Iterable[str]) -> InboxItem | None:
    rows = await tx.run("inbox_message", team=team, id=id_)
    if not rows:
        return None
    key, channel, status, sandbox, created_at, template_id, content = rows[0]
    found = await tx.run("inbox_recipients", message=key, carriers=[(carrier,) for carrier in carriers])
    if not found:
        return None
    return InboxItem(
        channel=channel,
        status=status,
        sandbox=sandbox,
        created_at=created_at,
        template_id=template_id,
        content=content,
        recipients=[InboxRecipient(*row) for row in found],
    )


async def cleared_at(tx: Tx, team: int) -> int:
    """0: never."""
    rows = await tx.run("inbox_cleared_at", team=team)
    return rows[0][0] if rows else 0


async def clear(tx: Tx, team: int, entry: AuditEntry) -> None:
    """Hide all that there is now."""
    await tx.run("clear_inbox", team=team, at=entry.at)
    await tx.run("insert_audit", entries=[entry])


def _given(span: Span) -> dict[str, object]:
    return {"team": span.team, "low": span.low, "high": span.high, "scan": SCAN}


async def _next(tx: Tx, end: str, span: Span, ids: list[str]) -> str | None:
    if len(ids) > span.limit:
        return ids[span.limit - 1]
    ((last, count),) = await tx.run(end, **_given(span))
    return last if count == SCAN else None
