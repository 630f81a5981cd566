"""Use cases for teams: create, change, set plan and retention, suspend, rename, go live, go back to sandbox, resume."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.changes.decisions import requester_id
from heliograph.changes.fields import check_fields
from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.limits import DAY_MS
from heliograph.domain.phones.opt_out import keyword_error
from heliograph.domain.refusals import InvalidRequest, TeamNotFound
from heliograph.domain.setup.going_live import checklist
from heliograph.domain.setup.records import Team, TeamRecord, Template
from heliograph.domain.setup.setup_file import read_team_fields
from heliograph.domain.setup.snapshot import Row, Setup, to_row
from heliograph.domain.setup.source_options import pool_error
from heliograph.storage.setup import NewTeam, SetupChange
from heliograph.storage.store import Store
from heliograph.templates.policy.check import category_in_use
from heliograph.templates.policy.values import passthrough_error

DELETION_DELAY_MS = 30 * DAY_MS  # a team can be restored for this long

Fields = Mapping[str, Any]  # in the format of a setup file


def get_team(setup: Setup, id_: str) -> Team:
    if id_ not in setup.teams:
        raise TeamNotFound(f"There is no team {id_}.")
    return setup.teams[id_]


async def create(store: Store, actor: Actor, raw_fields: Fields) -> TeamRecord:
    """Create a team with an opening credit. The id is generated if missing; the default name is the id."""
    fields = _read_fields({"id": store.clock.new_id("team_")} | dict(raw_fields))
    id_, credit = fields["id"], fields.pop("credit", 0)

    def build_change(current: Setup, ref: int) -> SetupChange:
        if id_ in current.teams:
            check_fields({"id": "A team with this ID already exists."})
        record = _validate_record(msgspec.convert({"name": id_} | fields | {"ref": ref}, TeamRecord))
        _check_keywords(record)
        _check_passthrough({}, record.passthrough)
        _check_pool(current, fields)
        entry = actor.audit_entry(store.clock.now(), "team.create", id_, team=id_)
        return SetupChange(rows=[to_row("team", id_, record, id_)], new_teams=[NewTeam(ref, credit)], audit=entry)

    await store.setup.change(build_change)
    return store.setup.current.teams[id_].record


async def set_plan(store: Store, actor: Actor, team: str, changes: Fields) -> TeamRecord:
    """Set fields of the team's plan; a field that is None returns to the default of the team's mode."""
    return await _set_fields(store, actor, "team.plan", team, changes)


async def change(store: Store, actor: Actor, team: str, changes: Fields) -> TeamRecord:
    """Change the team's fields in `changes`. `verify` and `opt_out` are merged with their current values."""
    return await _set_fields(store, actor, "team.change", team, changes)


async def _set_fields(store: Store, actor: Actor, action: str, team: str, changes: Fields) -> TeamRecord:
    fields = _read_fields({name: value for name, value in changes.items() if value is not None})
    fields |= {name: None for name, value in changes.items() if value is None}

    def revise(team_setup: Team, setup: Setup) -> TeamRecord:
        _check_passthrough(team_setup.templates, fields.get("passthrough") or "")
        _check_pool(setup, fields)
        before = msgspec.to_builtins(team_setup.record)
        parts = {name: before.get(name, {}) | fields[name] for name in ("verify", "opt_out") if name in fields}
        after = _validate_record(msgspec.convert(before | fields | parts, TeamRecord))
        if "opt_out" in fields:
            _check_keywords(after)
        if "categories" in fields:
            _check_categories(after, team_setup.templates)
        return after

    return await _change_team(store, actor, action, team, revise, changes)


async def set_suspended(store: Store, actor: Actor, team: str, suspended: bool) -> TeamRecord:
    def revise(team_setup: Team, _: Setup) -> TeamRecord:
        return _validate_record(replace(team_setup.record, suspended=suspended))

    return await _change_team(store, actor, "team.suspend" if suspended else "team.resume", team, revise)


async def request_deletion(store: Store, actor: Actor, team: str) -> TeamRecord:
    """Suspend the team now and delete it with all its data in 30 days, unless its deletion was requested before."""
    deletes_at = store.clock.now() + DELETION_DELAY_MS

    def revise(team_setup: Team, _: Setup) -> TeamRecord:
        record = team_setup.record
        if record.deletes_at:
            return record
        return replace(record, suspended=True, deletes_at=deletes_at, stays_suspended=record.suspended)

    return await _change_team(store, actor, "team.delete", team, revise)


async def restore(store: Store, actor: Actor, team: str) -> TeamRecord:
    """Cancel the team's deletion; it stays suspended only if it was suspended before the request.

    Nothing changes without a pending deletion. Raises TeamNotFound once the deletion is due.
    """
    now = store.clock.now()

    def revise(team_setup: Team, _: Setup) -> TeamRecord:
        record = team_setup.record
        if not record.deletes_at:
            return record
        if record.deletes_at <= now:
            raise TeamNotFound(f"The team {team} is being deleted and can't be restored any more.")
        return replace(record, suspended=record.stays_suspended, deletes_at=0, stays_suspended=False)

    return await _change_team(store, actor, "team.restore", team, revise)


async def save_settings(store: Store, actor: Actor, team: str, changes: Fields, *, by_operator: bool) -> TeamRecord:
    """Save the team's settings. Recipients see the name, so an owner's change of it needs an operator's approval."""
    fields = _read_fields(changes)
    name = fields.pop("name")

    def revise(team_setup: Team, _: Setup) -> TeamRecord:
        requested_name = name if name != team_setup.record.name else ""
        name_request = {
            "wanted": requested_name,
            "wanted_refused": "",
            "asked_by": requester_id(actor) if requested_name else "",
        }
        return replace(team_setup.record, **fields, **({"name": name} if by_operator else name_request))

    return await _change_team(store, actor, "team.change", team, revise, changes)


async def set_retention(store: Store, actor: Actor, team: str, changes: Fields) -> TeamRecord:
    """Set how long message content and messages are retained."""
    fields = _read_fields(changes)

    def revise(team_setup: Team, _: Setup) -> TeamRecord:
        return _validate_record(replace(team_setup.record, **fields))

    return await _change_team(store, actor, "team.keep", team, revise, changes)


async def set_categories(store: Store, actor: Actor, team: str, categories: list[str]) -> TeamRecord:
    """Set the categories of emails that recipients can unsubscribe from; those that templates use cannot be removed."""
    fields = _read_fields({"categories": categories})

    def revise(team_setup: Team, _: Setup) -> TeamRecord:
        after = replace(team_setup.record, categories=tuple(fields["categories"]))
        _check_categories(after, team_setup.templates)
        return after

    return await _change_team(store, actor, "team.categories", team, revise, {"categories": " ".join(categories)})


async def set_test_clock(store: Store, actor: Actor, team: str, enabled: bool) -> TeamRecord:
    """Switch the test clock on or off; delete messages, codes and events, because their times may be in the future."""

    def revise(team_setup: Team, _: Setup) -> TeamRecord:
        return _validate_record(replace(team_setup.record, test_clock=enabled))

    return await _change_team(store, actor, "team.test_clock", team, revise, {"test_clock": enabled})


async def go_live(store: Store, actor: Actor, team: str) -> TeamRecord:
    def revise(team_setup: Team, current: Setup) -> TeamRecord:
        checks = checklist(team_setup, current.carriers, credit=0)  # credit is recommended, not required
        missing = [check.text for check in checks if check.needed and not check.done]
        if team_setup.sandbox and missing:
            raise InvalidRequest(f"You can't go live yet. {' '.join(missing)}", param="live")
        return replace(team_setup.record, mode="live")

    return await _change_team(store, actor, "team.live", team, revise)


async def return_to_sandbox(store: Store, actor: Actor, team: str) -> TeamRecord:
    """Return the team to the sandbox. Messages accepted in live mode are still delivered and charged."""
    return await _change_team(
        store, actor, "team.sandbox", team, lambda team_setup, _: replace(team_setup.record, mode="sandbox")
    )


async def resume_direct_sends(store: Store, actor: Actor, team: str) -> bool:
    """Resume the team's emails without a template, which the reputation guard paused; return False if not paused."""
    get_team(store.setup.current, team)
    return await store.reputations.resume(
        team, actor.audit_entry(store.clock.now(), "reputation.resume", team, team=team)
    )


def _read_fields(raw_fields: Fields) -> dict[str, Any]:
    fields, errors = read_team_fields(raw_fields)
    check_fields(errors)
    return fields


def _validate_record(record: TeamRecord) -> TeamRecord:
    """Return the team's record; raise InvalidRequest if fields of the record exclude each other."""
    errors = {
        "suspended": record.suspended_error,
        "catch": record.catch_error,
        "test_clock": record.test_clock_error,
        "keep_messages_days": record.retention_error,
    }
    check_fields({name: error for name, error in errors.items() if error})
    return record


def _check_passthrough(templates: Mapping[str, Template], template: str) -> None:
    error = passthrough_error(templates.get(template)) if template else ""
    check_fields({"passthrough": f"{template} {error}."} if error else {})


def _check_categories(record: TeamRecord, templates: Mapping[str, Template]) -> None:
    error = category_in_use(record, templates.values())
    check_fields({"categories": error} if error else {})


def _check_keywords(record: TeamRecord) -> None:
    error = keyword_error(record.opt_out)
    check_fields({"opt_out": f"start_words: {error}."} if error else {})


def _check_pool(setup: Setup, fields: Fields) -> None:
    error = pool_error(fields["pool"], setup.carriers) if fields.get("pool") else ""
    check_fields({"pool": f"{error[0].upper()}{error[1:]}."} if error else {})


async def _change_team(
    store: Store,
    actor: Actor,
    action: str,
    id_: str,
    revise: Callable[[Team, Setup], TeamRecord],
    logged_fields: Fields | None = None,
) -> TeamRecord:
    """Change a team's record; `logged_fields`: the fields shown in the audit log."""
    detail = ", ".join(f"{name}={value}" for name, value in (logged_fields or {}).items())

    def make_rows(setup: Setup) -> list[Row]:
        team_setup = get_team(setup, id_)
        after = revise(team_setup, setup)
        return [] if after == team_setup.record else [to_row("team", id_, after, id_)]

    await change_rows(store, actor, id_, action, id_, make_rows, detail)
    return store.setup.current.teams[id_].record
