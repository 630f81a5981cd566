"""Reading and changing the setup; a change is one transaction, seen by every process within a second."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from heliograph.rules.setup import Row, Setup, updated
from heliograph.storage.database import Tx
from heliograph.storage.outcomes import NewId, suppression_event


class NewTeam(msgspec.Struct, frozen=True):
    """A team to be made: its opening balance is booked with it."""

    ref: int
    credit: int


class NewSuppression(msgspec.Struct, frozen=True):
    team: int
    address: str
    email: str
    reason: str


class DomainEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A domain was verified, or is no longer: told like a message's changes."""

    team: str
    domain: str
    type: str


class SetupChange(msgspec.Struct, frozen=True, kw_only=True):
    rows: Sequence[Row] = ()
    new_teams: Sequence[NewTeam] = ()
    suppressions: Sequence[NewSuppression] = ()
    events: Sequence[DomainEvent] = ()


async def load(tx: Tx, seen: Setup) -> Setup:
    """The setup as it is now; the same object when nothing changed."""
    ((version,),) = await tx.run("setup_version")
    if version == seen.version:
        return seen
    rows = await tx.run("load_settings", since=seen.version)
    return updated(seen, [Row(*row) for row in rows], version)


async def change(tx: Tx, decide: Callable[[Setup, int], SetupChange], now: int, new_id: NewId) -> SetupChange:
    """Decide on the newest setup and the next free team number; an exception in `decide` changes nothing."""
    ((version,),) = await tx.run("next_setup_version")  # also the lock: changes happen one after the other
    current = updated(Setup(), [Row(*row) for row in await tx.run("load_settings", since=0)], version)
    ((next_team,),) = await tx.run("next_team")
    plan = decide(current, next_team)
    rows = [(r.kind, r.id, r.team, r.body, version) for r in plan.rows]
    if rows:
        await tx.run("save_settings", settings=rows)
    for team in plan.new_teams:
        await tx.run("insert_account", team=team.ref, credit=team.credit)
    entries = [(team.ref, "topup", team.credit, None, now) for team in plan.new_teams if team.credit]
    if entries:
        await tx.run("insert_ledger", entries=entries)
    await suppress(tx, plan.suppressions, now, new_id)
    told = [
        (new_id("evt_"), current.teams[e.team].record.ref, e.domain, None, None, 1, e.type, None, None, None, None, now)
        for e in plan.events
    ]
    if told:
        await tx.run("insert_events", events=told)
    return plan


async def suppress(tx: Tx, given: Sequence[NewSuppression], now: int, new_id: NewId) -> set[tuple[int, str]]:
    """Put addresses on suppression lists; answers those that were not there before."""
    if not given:
        return set()
    rows = {(s.team, s.address): (s.team, s.address, s.email, s.reason, None, None, now) for s in given}
    made = {(r[0], r[1]) for r in await tx.run("insert_suppressions", suppressions=list(rows.values()))}
    events: list[tuple[Any, ...]] = [
        suppression_event(new_id, team, address, "suppression.created", None, now) for team, address in made
    ]
    if events:
        await tx.run("insert_events", events=events)
    return made
