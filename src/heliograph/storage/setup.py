"""Reads and changes the setup; a change is one transaction, visible to every process within a second."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.delivery.lanes import SETUP
from heliograph.domain.event_data import encode_data
from heliograph.domain.sending.pricing import currency_refusal
from heliograph.domain.setup.records import Domain, TeamRecord
from heliograph.domain.setup.snapshot import Row, Setup, apply_rows, to_row
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.engine.database import (
    Database,
    StoreUnavailable,
    T,
    Tx,
    TxFunction,
    schedule_wakeup,
    write_serialized,
)
from heliograph.storage.events import Event, Publisher
from heliograph.storage.outcomes import suppression_event
from heliograph.storage.purge import delete_team_data
from heliograph.templates.store import store_versions
from heliograph.webhooks.policy.formats.formats import is_subscribed, signs_callbacks

POLL_INTERVAL_S = 0.02  # minimum interval between polls for changes of other processes, however many callers wait


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
    data: Any  # a data object of domain/event_data.py


class SetupChange(msgspec.Struct, frozen=True, kw_only=True):
    rows: Sequence[Row] = ()
    new_teams: Sequence[NewTeam] = ()
    suppressions: Sequence[NewSuppression] = ()
    events: Sequence[SetupEvent] = ()
    audit: AuditEntry | None = None  # required if the change is not empty

    def __post_init__(self) -> None:
        if self.is_change and self.audit is None:
            raise TypeError("a change without an actor cannot be written")

    @property
    def is_change(self) -> bool:
        return bool(self.rows or self.new_teams or self.suppressions)


async def read_setup(tx: Tx, last_setup: Setup) -> Setup:
    """Return the current setup; if it is unchanged, return `last_setup`."""
    ((version,),) = await tx.run("setup_version")
    return last_setup if version == last_setup.version else await _read_newer(tx, last_setup, version)


async def _read_newer(tx: Tx, last_setup: Setup, version: int) -> Setup:
    """Return the setup at `version`, reading only rows that are newer than `last_setup`.

    If the database was restored from an older backup, all rows are read, because known records may no longer exist.
    """
    base = last_setup if last_setup.version < version else Setup()
    return apply_rows(base, [Row(*row) for row in await tx.run("load_settings", since=base.version)], version)


async def apply_change(
    tx: Tx, make_change: Callable[[Setup, int], SetupChange], now: int, publisher: Publisher, last_setup: Setup
) -> SetupChange:
    """Apply the change that `make_change` returns for the current setup and the next free team number.

    Nothing changes if `make_change` raises an exception.
    """
    current = await lock_and_read(tx, last_setup)
    ((next_team,),) = await tx.run("next_team")
    setup_change = make_change(current, next_team)
    await check_currencies(tx, current, setup_change.rows, lock=True)
    if setup_change.audit:
        await write_setup(tx, current, setup_change.rows, setup_change.new_teams, setup_change.audit.actor, now)
    await add_suppressions(tx, setup_change.suppressions, now, publisher)
    await publisher.publish(tx, [_event(publisher, current, event, now) for event in setup_change.events])
    if setup_change.is_change:
        await audit.write(tx, setup_change.audit)
    return setup_change


async def check_currencies(tx: Tx, current: Setup, rows: Sequence[Row], *, lock: bool = False) -> None:
    """Raise InvalidRequest if a row changes the currency of a team with ledger entries; `details` name the team.

    `lock`: wait for concurrent bookings of the team.
    """
    for row in rows:
        if row.kind != "team" or row.body is None or row.id not in current.teams:
            continue
        old, new = current.teams[row.id].record, msgspec.json.decode(row.body, type=TeamRecord)
        if new.currency == old.currency:
            continue
        if lock:
            await tx.run("lock_accounts", teams=[(old.ref,)])
        if await tx.run("ledger_page", team=old.ref, before=audit.NEWEST, limit=1):
            raise currency_refusal(old.id, old.currency, new.currency)


async def write_setup(
    tx: Tx, current: Setup, rows: Sequence[Row], new_teams: Sequence[NewTeam], actor: str, now: int
) -> None:
    """Write setup rows, versions of their templates, and accounts of new teams.

    Also deletes links and portals of newly suspended teams, portals of revoked platform keys, and the data of teams
    whose test clock was removed.
    """
    if rows:
        await save_rows(tx, rows, current.version)
        await store_versions(tx, rows, actor, now, current)
        new_setup = apply_rows(current, rows, current.version)
        suspended_teams = [
            (id_,) for id_, team in new_setup.teams.items() if team.record.suspended and not _is_suspended(current, id_)
        ]
        if suspended_teams:
            await tx.run("delete_links_of_teams", teams=suspended_teams)
            await tx.run("end_portals_of_teams", teams=suspended_teams)
        if revoked_keys := _revoked_platform_keys(rows, new_setup):
            await tx.run("end_portals_of_keys", keys=revoked_keys)
        for id_, old_team in current.teams.items():
            if old_team.record.test_clock and not new_setup.teams[id_].record.test_clock:
                await delete_team_data(tx, old_team)
                if old_team.clock:
                    await save_rows(tx, [to_row("test_clock", id_, None, id_)], current.version)
    for team in new_teams:
        await tx.run("insert_account", team=team.ref, credit=team.credit)
    entries = [(team.ref, "topup", team.credit, None, now, 0) for team in new_teams if team.credit]
    if entries:
        await tx.run("insert_ledger", entries=entries)


async def record_domain_check(
    tx: Tx, domain: str, checked_at: int, count_failures: Callable[[Domain], int], last_setup: Setup
) -> None:
    current = await lock_and_read(tx, last_setup)
    record = current.records.get(("domain", domain))
    if isinstance(record, Domain):
        updated_domain = replace(record, checked_at=checked_at, failures=count_failures(record))
        await save_rows(tx, [to_row("domain", domain, updated_domain, record.team or None)], current.version)


async def lock_and_read(tx: Tx, last_setup: Setup) -> Setup:
    """Lock the setup until the commit, and return its current records with the next version number."""
    ((version,),) = await tx.run("next_setup_version")
    return await _read_newer(tx, last_setup, version)


async def save_rows(tx: Tx, rows: Sequence[Row], version: int) -> None:
    """Save setup rows with the number `version`, which `lock_and_read` has locked and returned."""
    await tx.run("save_settings", settings=[(row.kind, row.id, row.team, row.body, version) for row in rows])
    schedule_wakeup(tx, SETUP)


async def add_suppressions(
    tx: Tx, suppressions: Sequence[NewSuppression], now: int, publisher: Publisher
) -> set[tuple[int, str]]:
    """Add addresses to suppression lists; return those (team, address) that were not listed before."""
    if not suppressions:
        return set()
    rows = {
        (item.team, item.address): (item.team, item.address, item.email, item.reason, None, None, now)
        for item in suppressions
    }
    added_keys = {(row[0], row[1]) for row in await tx.run("insert_suppressions", suppressions=list(rows.values()))}
    await publisher.publish(tx, [suppression_event(publisher, "suppression.created", rows[key]) for key in added_keys])
    return added_keys


def _is_suspended(setup: Setup, team: str) -> bool:
    return team in setup.teams and setup.teams[team].record.suspended


def _revoked_platform_keys(rows: Sequence[Row], setup: Setup) -> list[tuple[str]]:
    ids = [row.id for row in rows if row.kind == "key" and not row.team and row.id in setup.callers]
    return [(id_,) for id_ in ids if setup.callers[id_].key.revoked]


def _event(publisher: Publisher, setup: Setup, event: SetupEvent, at: int) -> Event:
    return Event(
        id=publisher.new_id("evt_"),
        team=setup.teams[event.team].record.ref,
        subject=event.subject,
        type=event.type,
        detail=encode_data(event.data),
        created_at=at + setup.clock_offset(event.team),
    )


class SetupStore:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self.current = Setup()  # newest version seen by this process
        self.publisher = Publisher(clock.new_id, self._subscribers, self._signer)
        self._next_poll: asyncio.Task[None] | None = None  # the next poll, which callers share until it begins to read
        self._polled_at = 0.0

    async def refresh(self) -> Setup:
        """Load changes made by any process and return the current setup."""
        previous_setup = self.current
        loaded = await self._database.read(lambda tx: read_setup(tx, previous_setup))
        # A slower, concurrent refresh must not restore an older setup.
        if loaded is not previous_setup and (self.current is previous_setup or loaded.version > self.current.version):
            self.current = loaded
            self._clock.offsets = loaded.clock_offsets
            self._database.wakeups.receive()  # work may be due now: a pause has ended, or a webhook was enabled
        return self.current

    async def refresh_if_newer(self, last_setup: Setup) -> bool:
        """Load changes; return whether the setup is now newer than `last_setup`.

        Concurrent callers share one poll of the database, and polls are at least POLL_INTERVAL_S apart.
        """
        if self._next_poll is None:
            self._next_poll = asyncio.create_task(self._poll())
        await asyncio.shield(self._next_poll)
        return self.current.version != last_setup.version

    async def _poll(self) -> None:
        loop_time = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._polled_at + POLL_INTERVAL_S - loop_time()))
        self._next_poll, self._polled_at = None, loop_time()  # this poll reads now: later callers need a new poll
        with contextlib.suppress(StoreUnavailable):
            await self.refresh()

    async def write_and_refresh(self, team: str | None, function: TxFunction[T]) -> T:
        """Run a transaction that changes the setup, after waiting in the fair queue of teams; then load its changes."""
        result = await write_serialized(self._database, function, team)
        await self.refresh()
        return result

    async def change(self, make_change: Callable[[Setup, int], SetupChange], team: str | None = None) -> SetupChange:
        """Apply the change that `make_change` returns for the current setup and the next free team number.

        Waiting changes are taken from each team in turn. `team`: the team that makes this one; None for the instance.
        """
        now, last_setup = self._clock.now(), self.current
        return await self.write_and_refresh(
            team, lambda tx: apply_change(tx, make_change, now, self.publisher, last_setup)
        )

    async def check_currencies(self, rows: Sequence[Row]) -> None:
        """Raise InvalidRequest if writing the rows now would be refused because of a team's currency."""
        await self._database.read(lambda tx: check_currencies(tx, self.current, rows))

    async def record_domain_check(self, domain: str, checked_at: int, count_failures: Callable[[Domain], int]) -> None:
        """Record the time of a domain's last DNS check and its number of consecutive failures.

        No user makes this change, so there is no audit entry. Whether the domain is verified is not written here.
        """
        last_setup = self.current
        record = last_setup.records.get(("domain", domain))
        team = record.team if isinstance(record, Domain) else None
        await self.write_and_refresh(
            team, lambda tx: record_domain_check(tx, domain, checked_at, count_failures, last_setup)
        )

    def _subscribers(self, team: int, type_: str, reason: str | None) -> list[str]:
        return [hook.id for hook in self.current.webhooks.get(team, ()) if is_subscribed(hook, type_, reason)]

    def _signer(self, team: int, type_: str) -> str | None:
        hooks = self.current.webhooks.get(team, ())
        return next((hook.id for hook in hooks if signs_callbacks(hook, type_)), None)
