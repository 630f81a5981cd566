"""Reads and changes the setup; a change is one transaction, visible to every process within a second."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.delivery.lanes import SETUP
from heliograph.domain.setup.records import Domain
from heliograph.domain.setup.snapshot import Row, Setup, to_row, updated
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.engine.database import Database, StoreUnavailable, Story, T, Tx, note, write_serialized
from heliograph.storage.events import Event, Publisher
from heliograph.storage.outcomes import suppression_event
from heliograph.storage.purge import forget_team
from heliograph.templates.store import keep_versions
from heliograph.webhooks.policy.formats.formats import hears, signs_callbacks

GAP_S = 0.02  # minimum interval between polls for changes of other processes, however many callers wait


class NewTeam(msgspec.Struct, frozen=True):
    """A team to create, with its opening balance."""

    ref: int
    credit: int


class NewSuppression(msgspec.Struct, frozen=True):
    team: int
    address: str
    email: str
    reason: str


class SetupEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event about a domain or template, published like message events."""

    team: str
    subject: str
    type: str
    data: dict[str, Any]


class SetupChange(msgspec.Struct, frozen=True, kw_only=True):
    rows: Sequence[Row] = ()
    new_teams: Sequence[NewTeam] = ()
    suppressions: Sequence[NewSuppression] = ()
    events: Sequence[SetupEvent] = ()
    audit: AuditEntry | None = None  # required and written if there is a change

    def __post_init__(self) -> None:
        if self.changes and self.audit is None:
            raise TypeError("a change without an actor cannot be written")

    @property
    def changes(self) -> bool:
        return bool(self.rows or self.new_teams or self.suppressions)


async def load(tx: Tx, seen: Setup) -> Setup:
    """Return the current setup; the same object if unchanged."""
    ((version,),) = await tx.run("setup_version")
    return seen if version == seen.version else await _since(tx, seen, version)


async def _since(tx: Tx, seen: Setup, version: int) -> Setup:
    """Return the setup at `version`, reading only newer rows.

    If the database was restored from an older backup, everything is read: seen records may not exist any more.
    """
    known = seen if seen.version < version else Setup()
    return updated(known, [Row(*row) for row in await tx.run("load_settings", since=known.version)], version)


async def change(
    tx: Tx, decide: Callable[[Setup, int], SetupChange], now: int, publisher: Publisher, seen: Setup
) -> SetupChange:
    """Apply the change that `decide` returns for the current setup and the next free team number.

    An exception in `decide` changes nothing. Under the lock, only rows newer than `seen` are read.
    """
    current = await locked(tx, seen)
    ((next_team,),) = await tx.run("next_team")
    plan = decide(current, next_team)
    if plan.audit:
        await write(tx, current, plan.rows, plan.new_teams, plan.audit.actor, now)
    await suppress(tx, plan.suppressions, now, publisher)
    await publisher.publish(tx, [_event(publisher, current, event, now) for event in plan.events])
    if plan.changes:
        await audit.write(tx, plan.audit)
    return plan


async def write(
    tx: Tx, current: Setup, rows: Sequence[Row], new_teams: Sequence[NewTeam], actor: str, now: int
) -> None:
    """Write setup rows, versions of their templates, and accounts of new teams.

    Also deletes links of newly suspended teams, and the data of teams whose test clock was removed.
    """
    if rows:
        await save(tx, rows, current.version)
        await keep_versions(tx, rows, actor, now, current)
        after = updated(current, rows, current.version).teams
        stopped = [(id_,) for id_, team in after.items() if team.record.suspended and not _is_suspended(current, id_)]
        if stopped:
            await tx.run("delete_links_of_teams", teams=stopped)
        for id_, before in current.teams.items():
            if before.record.test_clock and not after[id_].record.test_clock:
                await forget_team(tx, before)
                if before.clock:
                    await save(tx, [to_row("test_clock", id_, None, id_)], current.version)
    for team in new_teams:
        await tx.run("insert_account", team=team.ref, credit=team.credit)
    entries = [(team.ref, "topup", team.credit, None, now, 0) for team in new_teams if team.credit]
    if entries:
        await tx.run("insert_ledger", entries=entries)


async def observe(tx: Tx, domain: str, checked_at: int, failures: Callable[[Domain], int], seen: Setup) -> None:
    current = await locked(tx, seen)
    record = current.records.get(("domain", domain))
    if isinstance(record, Domain):
        checked = replace(record, checked_at=checked_at, failures=failures(record))
        await save(tx, [to_row("domain", domain, checked, record.team or None)], current.version)


async def locked(tx: Tx, seen: Setup) -> Setup:
    """Lock the setup and return its current records under the next version; changes are thereby serialized."""
    ((version,),) = await tx.run("next_setup_version")
    return await _since(tx, seen, version)


async def save(tx: Tx, rows: Sequence[Row], version: int) -> None:
    """Save rows under the lock of this version."""
    await tx.run("save_settings", settings=[(r.kind, r.id, r.team, r.body, version) for r in rows])
    note(tx, SETUP)


async def suppress(tx: Tx, given: Sequence[NewSuppression], now: int, publisher: Publisher) -> set[tuple[int, str]]:
    """Add addresses to suppression lists; return those that were not listed before."""
    if not given:
        return set()
    rows = {(s.team, s.address): (s.team, s.address, s.email, s.reason, None, None, now) for s in given}
    made = {(r[0], r[1]) for r in await tx.run("insert_suppressions", suppressions=list(rows.values()))}
    await publisher.publish(tx, [suppression_event(publisher, "suppression.created", rows[place]) for place in made])
    return made


def _is_suspended(setup: Setup, team: str) -> bool:
    return team in setup.teams and setup.teams[team].record.suspended


def _event(publisher: Publisher, setup: Setup, event: SetupEvent, at: int) -> Event:
    return Event(
        id=publisher.new_id("evt_"),
        team=setup.teams[event.team].record.ref,
        subject=event.subject,
        type=event.type,
        detail=msgspec.json.encode(event.data).decode(),
        created_at=at + setup.ahead(event.team),
    )


class SetupStore:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self.current = Setup()  # newest version seen by this process
        self.publisher = Publisher(clock.new_id, self._subscribers, self._signer)
        self._next_look: asyncio.Task[None] | None = None  # a poll that has not started yet
        self._looked_at = 0.0

    async def refresh(self) -> Setup:
        """Load changes and return the current setup."""
        seen = self.current
        found = await self._database.read(lambda tx: load(tx, seen))
        # A slower, concurrent refresh must not restore an older setup.
        if found is not seen and (self.current is seen or found.version > self.current.version):
            self.current = found
            self._clock.moved = found.moved
            self._database.hints.hear()  # a pause may have ended, or a webhook may be enabled
        return self.current

    async def learned_since(self, seen: Setup) -> bool:
        """Load changes; return whether the setup is now newer than `seen`.

        Concurrent callers share one poll of the database, and polls are at least GAP_S apart.
        """
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look())
        await asyncio.shield(self._next_look)
        return self.current.version != seen.version

    async def _look(self) -> None:
        time = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._looked_at + GAP_S - time()))
        self._next_look, self._looked_at = None, time()  # later callers start the next poll, which may see more
        with contextlib.suppress(StoreUnavailable):
            await self.refresh()

    async def write(self, team: str | None, story: Story[T]) -> T:
        """Run a transaction function that locks the setup, in the team's turn; then load its changes."""
        result = await write_serialized(self._database, story, team)
        await self.refresh()
        return result

    async def change(self, decide: Callable[[Setup, int], SetupChange], team: str | None = None) -> SetupChange:
        """Apply the change that `decide` returns for the current setup and the next free team number.

        `team`: group for the fair queue; None for the instance.
        """
        now, seen = self._clock.now(), self.current
        return await self.write(team, lambda tx: change(tx, decide, now, self.publisher, seen))

    async def observe(self, domain: str, checked_at: int, failures: Callable[[Domain], int]) -> None:
        """Record the time of a domain's last DNS check and its consecutive failures.

        This is no user's change, so there is no audit entry; whether the domain is verified is not written here.
        """
        seen = self.current
        record = seen.records.get(("domain", domain))
        team = record.team if isinstance(record, Domain) else None
        await self.write(team, lambda tx: observe(tx, domain, checked_at, failures, seen))

    def _subscribers(self, team: int, type_: str, reason: str | None) -> list[str]:
        return [hook.id for hook in self.current.webhooks.get(team, ()) if hears(hook, type_, reason)]

    def _signer(self, team: int, type_: str) -> str | None:
        hooks = self.current.webhooks.get(team, ())
        return next((hook.id for hook in hooks if signs_callbacks(hook, type_)), None)
