"""Notices to users and chats, each sent at most once per recipient.

A happening is something that users are to be notified of; `spread` creates one notice per recipient. A notice whose
sending was started is never started again after a crash: the notice may be lost, but is not sent twice.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.operations.notices import (
    INSTANCE,
    NUMBERED,
    RETRY_MS,
    TEST,
    NoticeKind,
    NoticeRow,
    batches,
    is_told,
)
from heliograph.domain.setup.snapshot import Setup
from heliograph.runtime.clock import Clock
from heliograph.storage import audit, notice_queue
from heliograph.storage.engine.database import Database, Tx, write_serialized

PORTION = 100  # happenings or notices per transaction
CHAT = "chat "  # prefix of a chat's place, followed by the team


class ChatHook(msgspec.Struct, frozen=True):
    team: str  # empty for the instance
    sealed: str
    host: str
    set_at: int


class NoticeMail(msgspec.Struct, frozen=True, kw_only=True):
    """Content and recipient of one email or chat post, which combines several notices."""

    place: str  # a user's id, or CHAT and the team
    mail: str  # id of the email
    email: str  # the user's address; empty for a chat
    role: str  # the user's role in the team of the first notice
    happenings: list[NoticeRow]
    tries: int  # attempts, including this one

    @property
    def chat_of(self) -> str | None:
        """Return the team whose chat gets the post. None if this is an email."""
        return self.place.removeprefix(CHAT) if self.place.startswith(CHAT) else None


class Outcome(msgspec.Struct, frozen=True):
    state: str  # sent, failed, or waiting for a retry
    detail: str = ""


class PastNotice(msgspec.Struct, frozen=True):
    """A notice in the list of recent ones."""

    happening: NoticeRow
    state: str
    done_at: int
    detail: str


class Notices:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    # -- sending ------------------------------------------------------------------------------------------------

    async def spread(self, setup: Setup, *, by_mail: bool) -> None:
        """Create one notice per recipient for each happening; without `by_mail`, only for chats."""
        now = self._clock.now()
        if (await self._waiting(now))[0]:
            await self._database.write(lambda tx: _spread(tx, setup, by_mail, now))

    async def take(self) -> list[NoticeMail]:
        """Return the mails and posts to send now, marked as started."""
        now = self._clock.now()
        if not (await self._waiting(now))[1]:
            return []
        return await self._database.write(lambda tx: _take(tx, now, self._clock.new_id))

    async def record(self, told: NoticeMail, outcome: Outcome) -> None:
        """Record the outcome of a mail or post; schedule a retry if `waiting` and attempts remain."""
        now, waits = self._clock.now(), outcome.state == "waiting"
        if waits and told.tries > len(RETRY_MS):
            outcome, waits = Outcome("failed", outcome.detail), False
        due = now + RETRY_MS[told.tries - 1] if waits else now
        rows = [
            (one.name, told.place, outcome.state, due, told.tries, "" if waits else told.mail, now, outcome.detail)
            for one in told.happenings
        ]
        await self._database.write(lambda tx: tx.run("move_notices", notices=rows))

    async def _waiting(self, now: int) -> Sequence[Any]:
        """Return whether a happening has no notices yet, and whether a notice is due."""
        (row,) = await self._database.read(lambda tx: tx.run("notices_wait", now=now))
        return [bool(value) for value in row]

    async def newest(self, place: str, limit: int = 5) -> list[PastNotice]:
        """Return the latest notices to a place, newest first, whether sent or not."""
        rows = await self._database.read(lambda tx: tx.run("notices_to", place=place, limit=limit))
        return [
            PastNotice(NoticeRow(name="", at=at, team=team, kind=kind, facts=_facts(facts)), *rest)
            for at, team, kind, facts, *rest in rows
        ]

    # -- choices of users ----------------------------------------------------------------------------------------

    async def choices(self, person: str) -> dict[NoticeKind, bool]:
        """Return the kinds of notice that the user has explicitly turned on or off."""
        rows = await self._database.read(lambda tx: tx.run("notice_choices", person=person))
        return {NoticeKind(team, kind): bool(wanted) for team, kind, wanted in rows}

    async def choose(self, person: str, wanted: Mapping[NoticeKind, bool], entry: AuditEntry) -> bool:
        """Store the choices; return whether any differs from before."""

        async def story(tx: Tx) -> bool:
            before = {
                NoticeKind(team, kind): bool(chosen)
                for team, kind, chosen in await tx.run("notice_choices", person=person)
            }
            if before | dict(wanted) == before:
                return False
            rows = [(person, team, kind, int(chosen)) for (team, kind), chosen in wanted.items()]
            await tx.run("choose_notices", choices=rows)
            await audit.write(tx, entry)
            return True

        return await write_serialized(self._database, story, entry.team)

    # -- chats --------------------------------------------------------------------------------------------------

    async def hook(self, team: str) -> ChatHook | None:
        rows = await self._database.read(lambda tx: tx.run("find_chat_hook", team=team))
        return ChatHook(*rows[0]) if rows else None

    async def set_hook(self, hook: ChatHook, entry: AuditEntry) -> None:
        async def story(tx: Tx) -> None:
            await tx.run("set_chat_hook", **msgspec.structs.asdict(hook))
            await audit.write(tx, entry)

        await write_serialized(self._database, story, entry.team)

    async def drop_hook(self, team: str, entry: AuditEntry) -> None:
        async def story(tx: Tx) -> None:
            await audit.write(tx, entry if await tx.run("drop_chat_hook", team=team) else None)

        await write_serialized(self._database, story, entry.team)

    async def test_hook(self, team: str, entry: AuditEntry) -> None:
        """Enqueue a test notice to the team's chat."""
        one = NoticeRow(name=self._clock.new_id("test/"), at=entry.at, team=team, kind=TEST)

        async def story(tx: Tx) -> None:
            await notice_queue.note(tx, one)
            await audit.write(tx, entry)

        await write_serialized(self._database, story, entry.team)


async def _spread(tx: Tx, setup: Setup, by_mail: bool, now: int) -> None:
    rows = []
    found = [
        NoticeRow(name=name, at=at, team=_team_id(team, setup), kind=kind, facts=_facts(facts), actor=actor)
        for name, at, team, kind, facts, actor in await tx.run("untold_happenings", limit=PORTION)
    ]
    for one in found:
        team = setup.teams.get(one.team)
        if one.team != INSTANCE and (team is None or team.record.suspended):
            continue
        if by_mail and one.kind != TEST:
            query = "members_to_tell" if one.team else "operators_to_tell"
            given = {"team": one.team} if one.team else {}
            people = await tx.run(query, kind=one.kind, **given)
            rows += [
                (one.name, person, now)
                for person, role, chosen in people
                if is_told(role, chosen) and person != one.actor
            ]
        if await tx.run("find_chat_hook", team=one.team):
            rows.append((one.name, CHAT + one.team, now))
    if rows:
        await tx.run("insert_notices", notices=rows)
    if found:
        await tx.run("tell_happenings", happenings=[(one.name, one.team) for one in found])


def _team_id(team: str, setup: Setup) -> str:
    """Return the id of a team; a deleted team keeps its number, which no user is a member of."""
    known = setup.teams_by_ref.get(int(team.removeprefix(NUMBERED))) if team.startswith(NUMBERED) else None
    return known.record.id if known else team


class _Due(msgspec.Struct, frozen=True, kw_only=True):
    happening: NoticeRow
    place: str
    tries: int
    email: str | None
    role: str | None
    chosen: int | None

    @property
    def may_be_told(self) -> bool:
        return self.place.startswith(CHAT) or is_told(self.role, self.chosen)


async def _take(tx: Tx, now: int, new_id: Any) -> list[NoticeMail]:
    """Take the mails that each place may get within its hourly limit.

    The other notices wait until an hour after the first mail of that hour.
    """
    by_place: defaultdict[str, list[_Due]] = defaultdict(list)
    moved: list[tuple[Any, ...]] = []
    for name, place, tries, at, team, kind, facts, email, role, chosen in await tx.run(
        "due_notices", now=now, limit=PORTION
    ):
        one = NoticeRow(name=name, at=at, team=team, kind=kind, facts=_facts(facts))
        due = _Due(happening=one, place=place, tries=tries, email=email, role=role, chosen=chosen)
        if due.may_be_told:
            by_place[place].append(due)
        else:
            moved.append((name, place, "dropped", now, tries, "", now, "no longer in the team, or not wanted"))
    lately = {
        place: (count, first)
        for place, count, first in await tx.run(
            "mails_lately", places=[(place,) for place in by_place], since=now - HOUR_MS
        )
    }
    told = []
    for place, waiting in by_place.items():
        sent, first = lately.get(place, (0, now))
        left = sorted(waiting, key=lambda due: (due.happening.at, due.happening.name))
        for size in batches(len(waiting), sent):
            taken, left = left[:size], left[size:]
            mail = new_id("eml_")
            told.append(_told(place, mail, taken))
            moved += [(d.happening.name, place, "sending", now, d.tries + 1, mail, now, "") for d in taken]
        moved += [(d.happening.name, place, "waiting", first + HOUR_MS, d.tries, "", None, "") for d in left]
    await tx.run("move_notices", notices=moved)
    return told


def _told(place: str, mail: str, taken: Sequence[_Due]) -> NoticeMail:
    return NoticeMail(
        place=place,
        mail=mail,
        email=taken[0].email or "",
        role=taken[0].role or "",
        happenings=[due.happening for due in taken],
        tries=max(due.tries for due in taken) + 1,
    )


def _facts(text: str) -> dict[str, str]:
    return msgspec.json.decode(text, type=dict[str, str])
