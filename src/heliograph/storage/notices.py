"""Notices to users and chats, each sent at most once per recipient.

A row of the table `happening` is a notice without recipients; `fan_out` copies it to the table `notice`, once per
recipient. If a process crashes while it sends a notice, the notice is not sent again: it can be lost, but not repeated.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.operations.notices import (
    INSTANCE_TEAM,
    RETRY_MS,
    TEAM_REF_PREFIX,
    TEST,
    NoticeKind,
    NoticeRow,
    mail_sizes,
    receives_notice,
)
from heliograph.domain.setup.snapshot import Setup
from heliograph.runtime.clock import Clock
from heliograph.storage import audit, notice_queue
from heliograph.storage.engine.database import Database, Tx, write_serialized

BATCH = 100  # notices per transaction
CHAT_PREFIX = "chat "  # prefix of the destination of a chat, followed by the team


class ChatWebhook(msgspec.Struct, frozen=True):
    team: str  # empty for the instance
    encrypted_url: str
    host: str
    set_at: int


class NoticeMail(msgspec.Struct, frozen=True, kw_only=True):
    """One email or chat post, which combines several notices, with its recipient."""

    destination: str  # a user's id, or CHAT_PREFIX and the id of the team
    mail: str  # id of the email or chat post
    email: str  # the user's address; empty for a chat
    role: str  # the user's role in the team of the first notice
    notices: list[NoticeRow]
    attempts: int  # attempts, including this one

    @property
    def chat_team(self) -> str | None:
        """Return the id of the team whose chat gets the post: empty for the instance, None if this is an email."""
        return self.destination.removeprefix(CHAT_PREFIX) if self.destination.startswith(CHAT_PREFIX) else None


class NoticeOutcome(msgspec.Struct, frozen=True):
    state: str  # sent, failed, or waiting for a retry
    detail: str = ""


class PastNotice(msgspec.Struct, frozen=True):
    """A notice in the list of recent notices."""

    notice: NoticeRow
    state: str
    done_at: int
    detail: str


class Notices:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    # -- sending ------------------------------------------------------------------------------------------------

    async def fan_out(self, setup: Setup, *, by_mail: bool) -> None:
        """Create one notice per recipient for each queued notice; with `by_mail=False`, only for chats."""
        now = self._clock.now()
        if (await self._read_pending(now))[0]:
            await self._database.write(lambda tx: _fan_out(tx, setup, by_mail, now))

    async def take_due(self) -> list[NoticeMail]:
        """Mark the notices that are due as started, and return the emails and chat posts that contain them."""
        now = self._clock.now()
        if not (await self._read_pending(now))[1]:
            return []
        return await self._database.write(lambda tx: _take_mails(tx, now, self._clock.new_id))

    async def record(self, mail: NoticeMail, outcome: NoticeOutcome) -> None:
        """Record the outcome of an email or chat post; schedule a retry if it is `waiting` and attempts remain."""
        now, is_retry = self._clock.now(), outcome.state == "waiting"
        if is_retry and mail.attempts > len(RETRY_MS):
            outcome, is_retry = NoticeOutcome("failed", outcome.detail), False
        due_at = now + RETRY_MS[mail.attempts - 1] if is_retry else now
        mail_id = "" if is_retry else mail.mail
        rows = [
            (notice.name, mail.destination, outcome.state, due_at, mail.attempts, mail_id, now, outcome.detail)
            for notice in mail.notices
        ]
        await self._database.write(lambda tx: tx.run("update_notices", notices=rows))

    async def _read_pending(self, now: int) -> Sequence[Any]:
        """Return whether a queued notice has no recipients yet, and whether a notice is due."""
        (row,) = await self._database.read(lambda tx: tx.run("any_notice_pending", now=now))
        return [bool(value) for value in row]

    async def newest(self, destination: str, limit: int = 5) -> list[PastNotice]:
        """Return the latest notices to a user or chat, newest first, both sent and unsent."""
        rows = await self._database.read(lambda tx: tx.run("notices_to", place=destination, limit=limit))
        return [
            PastNotice(NoticeRow(name="", at=at, team=team, kind=kind, facts=_decode_facts(facts)), *columns)
            for at, team, kind, facts, *columns in rows
        ]

    # -- settings of users ---------------------------------------------------------------------------------------

    async def choices(self, person: str) -> dict[NoticeKind, bool]:
        """Return kind of notice → whether the user turned it on; kinds without an explicit setting are missing."""
        rows = await self._database.read(lambda tx: tx.run("notice_choices", person=person))
        return {NoticeKind(team, kind): bool(is_on) for team, kind, is_on in rows}

    async def choose(self, person: str, choices: Mapping[NoticeKind, bool], entry: AuditEntry) -> bool:
        """Store the user's notice settings; return False if all are as before."""

        async def save_choices(tx: Tx) -> bool:
            previous_choices = {
                NoticeKind(team, kind): bool(is_on)
                for team, kind, is_on in await tx.run("notice_choices", person=person)
            }
            if previous_choices | dict(choices) == previous_choices:
                return False
            rows = [(person, team, kind, int(is_on)) for (team, kind), is_on in choices.items()]
            await tx.run("set_notice_choices", choices=rows)
            await audit.write(tx, entry)
            return True

        return await write_serialized(self._database, save_choices, entry.team)

    # -- chats --------------------------------------------------------------------------------------------------

    async def get_chat_webhook(self, team: str) -> ChatWebhook | None:
        rows = await self._database.read(lambda tx: tx.run("find_chat_hook", team=team))
        return ChatWebhook(*rows[0]) if rows else None

    async def set_chat_webhook(self, hook: ChatWebhook, entry: AuditEntry) -> None:
        async def save_webhook(tx: Tx) -> None:
            await tx.run("set_chat_hook", **msgspec.structs.asdict(hook))
            await audit.write(tx, entry)

        await write_serialized(self._database, save_webhook, entry.team)

    async def delete_chat_webhook(self, team: str, entry: AuditEntry) -> None:
        async def delete_webhook(tx: Tx) -> None:
            await audit.write(tx, entry if await tx.run("delete_chat_hook", team=team) else None)

        await write_serialized(self._database, delete_webhook, entry.team)

    async def test_chat_webhook(self, team: str, entry: AuditEntry) -> None:
        """Enqueue a test notice to the team's chat."""
        notice = NoticeRow(name=self._clock.new_id("test/"), at=entry.at, team=team, kind=TEST)

        async def enqueue_test(tx: Tx) -> None:
            await notice_queue.enqueue(tx, notice)
            await audit.write(tx, entry)

        await write_serialized(self._database, enqueue_test, entry.team)


async def _fan_out(tx: Tx, setup: Setup, by_mail: bool, now: int) -> None:
    rows = []
    notices = [
        NoticeRow(name=name, at=at, team=_team_id(team, setup), kind=kind, facts=_decode_facts(facts), actor=actor)
        for name, at, team, kind, facts, actor in await tx.run("lock_new_happenings", limit=BATCH)
    ]
    for notice in notices:
        team = setup.teams.get(notice.team)
        if notice.team != INSTANCE_TEAM and (team is None or team.record.suspended):
            continue
        if by_mail and notice.kind != TEST:
            query = "members_to_notify" if notice.team else "operators_to_notify"
            params = {"team": notice.team} if notice.team else {}
            recipients = await tx.run(query, kind=notice.kind, **params)
            rows += [
                (notice.name, person, now)
                for person, role, is_on in recipients
                if receives_notice(role, is_on) and person != notice.actor
            ]
        if await tx.run("find_chat_hook", team=notice.team):
            rows.append((notice.name, CHAT_PREFIX + notice.team, now))
    if rows:
        await tx.run("insert_notices", notices=rows)
    if notices:
        await tx.run("finish_happenings", happenings=[(notice.name, notice.team) for notice in notices])


def _team_id(team: str, setup: Setup) -> str:
    """Return the id of a team, given its id or `#` and its number; unchanged for a deleted team (it has no members)."""
    if not team.startswith(TEAM_REF_PREFIX):
        return team
    numbered_team = setup.teams_by_ref.get(int(team.removeprefix(TEAM_REF_PREFIX)))
    return numbered_team.record.id if numbered_team else team


class _DueNotice(msgspec.Struct, frozen=True, kw_only=True):
    notice: NoticeRow
    destination: str
    attempts: int
    email: str | None
    role: str | None
    is_on: int | None

    @property
    def should_send(self) -> bool:
        return self.destination.startswith(CHAT_PREFIX) or receives_notice(self.role, self.is_on)


async def _take_mails(tx: Tx, now: int, new_id: Any) -> list[NoticeMail]:
    """Return the emails and chat posts that may still be sent this hour to each destination, marked as being sent.

    The remaining notices of a destination become due one hour after the first email of the last hour.
    """
    due_by_destination: defaultdict[str, list[_DueNotice]] = defaultdict(list)
    notice_rows: list[tuple[Any, ...]] = []
    for name, destination, attempts, at, team, kind, facts, email, role, is_on in await tx.run(
        "due_notices", now=now, limit=BATCH
    ):
        notice = NoticeRow(name=name, at=at, team=team, kind=kind, facts=_decode_facts(facts))
        due = _DueNotice(notice=notice, destination=destination, attempts=attempts, email=email, role=role, is_on=is_on)
        if due.should_send:
            due_by_destination[destination].append(due)
        else:
            reason = "recipient left the team or turned this notice off"
            notice_rows.append((name, destination, "dropped", now, attempts, "", now, reason))
    recent_mails = {
        destination: (count, first_at)
        for destination, count, first_at in await tx.run(
            "recent_mail_counts", places=[(destination,) for destination in due_by_destination], since=now - HOUR_MS
        )
    }
    mails = []
    for destination, due_notices in due_by_destination.items():
        sent_count, first_at = recent_mails.get(destination, (0, now))
        remaining_notices = sorted(due_notices, key=lambda due: (due.notice.at, due.notice.name))
        for size in mail_sizes(len(due_notices), sent_count):
            batch, remaining_notices = remaining_notices[:size], remaining_notices[size:]
            mail_id = new_id("eml_")
            mails.append(_notice_mail(destination, mail_id, batch))
            notice_rows += [
                (due.notice.name, destination, "sending", now, due.attempts + 1, mail_id, now, "") for due in batch
            ]
        notice_rows += [
            (due.notice.name, destination, "waiting", first_at + HOUR_MS, due.attempts, "", None, "")
            for due in remaining_notices
        ]
    await tx.run("update_notices", notices=notice_rows)
    return mails


def _notice_mail(destination: str, mail: str, batch: Sequence[_DueNotice]) -> NoticeMail:
    return NoticeMail(
        destination=destination,
        mail=mail,
        email=batch[0].email or "",
        role=batch[0].role or "",
        notices=[due.notice for due in batch],
        attempts=max(due.attempts for due in batch) + 1,
    )


def _decode_facts(text: str) -> dict[str, str]:
    return msgspec.json.decode(text, type=dict[str, str])
