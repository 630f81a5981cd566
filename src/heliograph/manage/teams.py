"""Use cases for teams: create, set plan and retention, suspend, rename, go live, go back to sandbox, resume sending."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.changes.decisions import asker
from heliograph.changes.fields import check_fields
from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.domain.setup.going_live import checklist
from heliograph.domain.setup.records import Team, TeamRecord
from heliograph.domain.setup.setup_file import read_team_fields
from heliograph.domain.setup.snapshot import Row, Setup, to_row
from heliograph.storage.setup import NewTeam, SetupChange
from heliograph.storage.store import Store
from heliograph.templates.policy.values import wrong_passthrough

Fields = Mapping[str, Any]  # in the format of a setup file


def find_team(setup: Setup, id_: str) -> Team:
    if id_ not in setup.teams:
        raise NotFound(f"There is no team {id_}.")
    return setup.teams[id_]


async def create(store: Store, actor: Actor, given: Fields) -> TeamRecord:
    """Create a team with an opening credit. The id is generated if missing; the default name is the id."""
    fields = _read({"id": store.clock.new_id("team_")} | dict(given))
    id_, credit = fields["id"], fields.pop("credit", 0)

    def decide(current: Setup, ref: int) -> SetupChange:
        if id_ in current.teams:
            check_fields({"id": "There is a team with this id already."})
        record = msgspec.convert({"name": id_} | fields | {"ref": ref}, TeamRecord)
        _check_mode(record)
        entry = actor.did(store.clock.now(), "team.create", id_, team=id_)
        return SetupChange(rows=[to_row("team", id_, record, id_)], new_teams=[NewTeam(ref, credit)], audit=entry)

    await store.setup.change(decide)
    return store.setup.current.teams[id_].record


async def set_plan(store: Store, actor: Actor, team: str, given: Fields) -> TeamRecord:
    """Set fields of the plan; None restores the default of the team's mode."""
    fields = _read({name: value for name, value in given.items() if value is not None})
    fields |= {name: None for name, value in given.items() if value is None}

    def revise(found: Team, _: Setup) -> TeamRecord:
        template = fields.get("passthrough")
        why = wrong_passthrough(found.templates.get(template)) if template else ""
        check_fields({"passthrough": f"{template} {why}."} if why else {})
        before = msgspec.to_builtins(found.record)
        verify = before.get("verify", {}) | fields.get("verify", {})
        after = msgspec.convert(before | fields | {"verify": verify}, TeamRecord)
        _check_mode(after)
        return after

    return await _change(store, actor, "team.plan", team, revise, given)


async def set_suspended(store: Store, actor: Actor, team: str, suspended: bool) -> TeamRecord:
    action = "team.suspend" if suspended else "team.resume"
    return await _change(store, actor, action, team, lambda found, _: replace(found.record, suspended=suspended))


async def save(store: Store, actor: Actor, team: str, given: Fields, *, by_operator: bool) -> TeamRecord:
    """Save the name and other fields. Recipients see the name, so a change by an owner needs an operator's approval."""
    fields = _read(given)
    name = fields.pop("name")

    def revise(found: Team, _: Setup) -> TeamRecord:
        asked = name if name != found.record.name else ""
        wanted = {"wanted": asked, "wanted_refused": "", "asked_by": asker(actor) if asked else ""}
        return replace(found.record, **fields, **({"name": name} if by_operator else wanted))

    return await _change(store, actor, "team.change", team, revise, given)


async def set_retention(store: Store, actor: Actor, team: str, given: Fields) -> TeamRecord:
    """Set how long message content and messages are retained."""
    fields = _read(given)

    def revise(found: Team, _: Setup) -> TeamRecord:
        after = replace(found.record, **fields)
        check_fields({"keep_messages_days": after.wrong_days} if after.wrong_days else {})
        return after

    return await _change(store, actor, "team.keep", team, revise, given)


async def set_test_clock(store: Store, actor: Actor, team: str, on: bool) -> TeamRecord:
    """Switch the test clock on or off.

    Deletes the team's messages, codes and events, because their times may be in the future.
    """

    def revise(found: Team, _: Setup) -> TeamRecord:
        after = replace(found.record, test_clock=on)
        _check_mode(after)
        return after

    return await _change(store, actor, "team.test_clock", team, revise, {"test_clock": on})


async def go_live(store: Store, actor: Actor, team: str) -> TeamRecord:
    def revise(found: Team, current: Setup) -> TeamRecord:
        checks = checklist(found, current.carriers, credit=0)  # credit is recommended, not required
        missing = [check.text for check in checks if check.needed and not check.done]
        if found.sandbox and missing:
            raise InvalidRequest(f"Not yet: {' '.join(missing)}", param="live")
        return replace(found.record, mode="live")

    return await _change(store, actor, "team.live", team, revise)


async def leave_live(store: Store, actor: Actor, team: str) -> TeamRecord:
    """Return the team to the sandbox. Messages accepted in live mode are still delivered and charged."""
    return await _change(store, actor, "team.sandbox", team, lambda found, _: replace(found.record, mode="sandbox"))


async def resume_direct(store: Store, actor: Actor, team: str) -> bool:
    """End the reputation guard's pause of direct sends; return False if they are not paused."""
    find_team(store.setup.current, team)
    return await store.reputation.resume(team, actor.did(store.clock.now(), "reputation.resume", team, team=team))


def _read(given: Fields) -> dict[str, Any]:
    fields, errors = read_team_fields(given)
    check_fields(errors)
    return fields


def _check_mode(record: TeamRecord) -> None:
    wrong = {"catch": record.wrong_catch, "test_clock": record.wrong_test_clock}
    check_fields({name: why for name, why in wrong.items() if why})


async def _change(
    store: Store,
    actor: Actor,
    action: str,
    id_: str,
    revise: Callable[[Team, Setup], TeamRecord],
    given: Fields | None = None,
) -> TeamRecord:
    """Change a team's record; `given`: the fields shown in the audit log."""
    detail = ", ".join(f"{name}={value}" for name, value in (given or {}).items())

    def rows(setup: Setup) -> list[Row]:
        found = find_team(setup, id_)
        after = revise(found, setup)
        return [] if after == found.record else [to_row("team", id_, after, id_)]

    await change_rows(store, actor, id_, action, id_, rows, detail)
    return store.setup.current.teams[id_].record
