"""Imports of suppressions: the file is stored first, then any process adds its addresses batch by batch.

Exports of other services may also contain domains, templates and layouts.
"""

import asyncio
from collections.abc import Sequence
from typing import TextIO

import msgspec
from msgspec.structs import replace

from heliograph.domain.audit.actor import Actor
from heliograph.domain.exports.records import (
    Exported,
    ExportedAddress,
    ExportedDomain,
    ExportedLayout,
    ExportedTemplate,
    LeftOut,
    edit_exported,
)
from heliograph.domain.mail.suppression_file import ReadLine, Unreadable, read_lines, to_line
from heliograph.domain.refusals import InvalidRequest, Refusal
from heliograph.domain.setup.records import Layout, TeamRecord
from heliograph.domain.setup.snapshot import Setup
from heliograph.manage.domains import Domains
from heliograph.manage.teams import find_team
from heliograph.storage.imports import Import
from heliograph.storage.store import Store
from heliograph.templates import layout_service as layouts
from heliograph.templates import service as templates
from heliograph.templates.policy.check import layout_problems
from heliograph.templates.policy.lint import problems_of_layout

BUSY_S = 0.05  # delay between polls while the running service processes a batch


class BroughtLine(msgspec.Struct, frozen=True, kw_only=True):
    """Import result of one record of another service's export."""

    number: int
    kind: str  # suppression, domain, template or layout; empty if skipped
    text: str
    outcome: str
    notes: Sequence[str] = ()  # what is not imported or has another meaning here, by part and line
    is_left_out: bool = False


def left_out(line: BroughtLine, why: str, notes: Sequence[str] = ()) -> BroughtLine:
    return replace(line, outcome=f"left out: {why}", notes=notes, is_left_out=True)


async def begin(store: Store, actor: Actor, team: TeamRecord, file: bytes | TextIO) -> str:
    """Begin an import and return its id."""
    try:
        lines = await asyncio.to_thread(read_lines, file)
    except Unreadable as error:
        raise InvalidRequest(str(error), param="file") from None
    return await _begin(store, actor, team, lines)


async def _begin(store: Store, actor: Actor, team: TeamRecord, lines: Sequence[ReadLine]) -> str:
    id_ = store.clock.new_id("imp_")
    entry = actor.did(store.clock.now(), "suppression.import", id_, f"{len(lines)} lines", team=team.id)
    await store.imports.begin(id_, team.ref, lines, entry)
    return id_


async def finish(store: Store, team: TeamRecord, id_: str) -> Import:
    """Process the import to its end, together with a running service that may process the same import."""
    while (begun := await store.imports.find(team.ref, id_)) is None or begun.state == "importing":
        if not await store.imports.do_portion(id_):
            await asyncio.sleep(BUSY_S)
    return begun


async def bring(
    store: Store, domains: Domains, actor: Actor, team: str, records: Sequence[tuple[int, Exported]]
) -> list[BroughtLine]:
    """Import all supported records of another service's export. Existing records stay unchanged."""
    done, seen = list[BroughtLine](), dict[str, int]()
    addresses = [(number, one) for number, one in records if isinstance(one, ExportedAddress)]
    lines = [to_line(number, one.email, one.reason, seen) for number, one in addresses]
    if lines:
        done += await _suppress(store, actor, find_team(store.setup.current, team).record, lines)
    for number, one in sorted(records, key=lambda record: not isinstance(record[1], ExportedLayout)):
        match one:
            case ExportedLayout():
                done.append(await _add_layout(store, actor, team, number, one))
            case ExportedDomain():
                done.append(await _add_domain(store, domains, actor, team, number, one.name))
            case ExportedTemplate():
                done.append(await _add_template(store, actor, team, number, one))
            case LeftOut():
                line = BroughtLine(number=number, kind="", text=one.text, outcome="")
                done.append(left_out(line, one.why, one.notes))
    return sorted(done, key=lambda line: line.number)


async def _suppress(store: Store, actor: Actor, team: TeamRecord, lines: Sequence[ReadLine]) -> list[BroughtLine]:
    id_ = await _begin(store, actor, team, lines)
    await finish(store, team, id_)
    done, after = list[BroughtLine](), -1
    while True:
        report = await store.imports.report(id_, after)
        for one in report.lines:
            line = BroughtLine(number=one.line.number, kind="suppression", text=one.line.text, outcome=one.outcome)
            done.append(left_out(line, one.outcome) if one.line.wrong else line)
        if report.after is None:
            return done
        after = report.after


async def _add_domain(store: Store, domains: Domains, actor: Actor, team: str, number: int, name: str) -> BroughtLine:
    before = set(find_team(store.setup.current, team).domains)
    line = BroughtLine(number=number, kind="domain", text=name, outcome="already there")
    try:
        made = await domains.add(actor, team, name)
    except InvalidRequest as refusal:
        return left_out(line, refusal.message)
    return line if made.name in before else replace(line, outcome=f"added as {made.id}")


async def _add_layout(store: Store, actor: Actor, team: str, number: int, given: ExportedLayout) -> BroughtLine:
    own, id_ = find_team(store.setup.current, team), _layout_id(store.setup.current, team, given.own_id)
    line = BroughtLine(number=number, kind="layout", text=given.name, outcome=f"it is {id_} now")
    if id_ in own.layouts:
        return replace(line, outcome=f"already there as {id_}")
    base = Layout(id=id_, team=own.record.id, name=given.name, status="draft")
    try:
        await layouts.write(store, actor, base, given.words, publish=True, by_operator=True)
    except Refusal as refusal:
        notes = [str(one) for one in problems_of_layout(replace(base, **given.words)) if one.level == "error"]
        return left_out(line, refusal.message, notes)
    return line


def _layout_id(setup: Setup, team: str, id_: str) -> str:
    """Return the id of an imported layout; the team's id is appended if another team's layout has the same id."""
    found = setup.records.get(("layout", id_))
    return f"{id_}_{team}" if isinstance(found, Layout) and found.team != team else id_


async def _add_template(store: Store, actor: Actor, team: str, number: int, given: ExportedTemplate) -> BroughtLine:
    own = find_team(store.setup.current, team).templates
    is_free = given.own_id and ("template", given.own_id) not in store.setup.current.records
    alike = (one for one in own.values() if (one.channel, one.name) == (given.channel, given.name))
    # Several templates may share a name, for example one per language: the id distinguishes them.
    if not is_free and (same := own.get(given.own_id) or next(alike, None)):
        return BroughtLine(number=number, kind="template", text=given.name, outcome=f"already there as {same.id}")
    id_ = given.own_id if is_free else store.clock.new_id("tpl_")
    line = BroughtLine(number=number, kind="template", text=given.name, outcome="", notes=given.notes)
    if layout := given.words.get("layout"):
        given = replace(given, words={**given.words, "layout": _layout_id(store.setup.current, team, layout)})
    edited = edit_exported(given, id_, team)
    wrong = [f"{field}: {one}" for field, error in edited.errors.items() for one in error.splitlines()]
    wrong += [f"alias: {one.id} has it already" for one in own.values() if one.alias == edited.template.alias != ""]
    wrong += map(str, layout_problems(edited.template, find_team(store.setup.current, team).layouts))
    if wrong:
        return left_out(line, "; ".join(wrong), wrong)
    # Email may be free; an operator must set the price of other channels, unless the team has a similar template.
    await templates.save(store, actor, edited.template, mark=None, by_operator=given.channel == "email")
    is_draft = find_team(store.setup.current, team).templates[id_].status == "draft"
    outcome = f"{given.id} is {id_} now".strip() + (", a draft until it is approved with its price" if is_draft else "")
    return replace(line, outcome=outcome)
