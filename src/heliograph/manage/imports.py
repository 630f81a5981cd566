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
    SkippedRow,
    edit_exported,
)
from heliograph.domain.mail.suppression_file import (
    SuppressionFileRow,
    UnreadableFile,
    parse_row,
    parse_suppression_file,
)
from heliograph.domain.refusals import InvalidRequest, Refusal
from heliograph.domain.setup.records import Layout, TeamRecord
from heliograph.domain.setup.snapshot import Setup
from heliograph.manage.domains import Domains
from heliograph.manage.teams import get_team
from heliograph.storage.imports import Import
from heliograph.storage.store import Store
from heliograph.templates import layout_service as layouts
from heliograph.templates import service as templates
from heliograph.templates.policy.check import layout_problems
from heliograph.templates.policy.lint import find_layout_problems

POLL_S = 0.05  # delay between polls while the running service processes a batch


class ImportedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Import result of one record of another service's export."""

    number: int
    kind: str  # suppression, domain, template or layout; empty if skipped
    text: str
    outcome: str
    notes: Sequence[str] = ()  # what is not imported or has another meaning here, by part and line
    is_skipped: bool = False


def skip_record(imported: ImportedRecord, reason: str, notes: Sequence[str] = ()) -> ImportedRecord:
    return replace(imported, outcome=f"left out: {reason}", notes=notes, is_skipped=True)


async def begin_suppression_import(store: Store, actor: Actor, team: TeamRecord, file: bytes | TextIO) -> str:
    """Store a file of suppressions for import and return the import's id."""
    try:
        lines = await asyncio.to_thread(parse_suppression_file, file)
    except UnreadableFile as error:
        raise InvalidRequest(str(error), param="file") from None
    return await _begin_import(store, actor, team, lines)


async def _begin_import(store: Store, actor: Actor, team: TeamRecord, lines: Sequence[SuppressionFileRow]) -> str:
    id_ = store.clock.new_id("imp_")
    entry = actor.audit_entry(store.clock.now(), "suppression.import", id_, f"{len(lines)} lines", team=team.id)
    await store.imports.begin(id_, team.ref, lines, entry)
    return id_


async def finish_import(store: Store, team: TeamRecord, id_: str) -> Import:
    """Process an import to its end. A running service may process batches of the same import concurrently."""
    while (import_ := await store.imports.find(team.ref, id_)) is None or import_.state == "importing":
        if not await store.imports.apply_batch(id_):
            await asyncio.sleep(POLL_S)
    return import_


async def import_records(
    store: Store, domains: Domains, actor: Actor, team: str, records: Sequence[tuple[int, Exported]]
) -> list[ImportedRecord]:
    """Import all supported records of another service's export. Existing records stay unchanged."""
    results, first_line_by_address = list[ImportedRecord](), dict[str, int]()
    addresses = [(number, record) for number, record in records if isinstance(record, ExportedAddress)]
    lines = [parse_row(number, record.email, record.reason, first_line_by_address) for number, record in addresses]
    if lines:
        results += await _import_suppressions(store, actor, get_team(store.setup.current, team).record, lines)
    for number, record in sorted(records, key=lambda record: not isinstance(record[1], ExportedLayout)):
        match record:
            case ExportedLayout():
                results.append(await _import_layout(store, actor, team, number, record))
            case ExportedDomain():
                results.append(await _import_domain(store, domains, actor, team, number, record.name))
            case ExportedTemplate():
                results.append(await _import_template(store, actor, team, number, record))
            case SkippedRow():
                result = ImportedRecord(number=number, kind="", text=record.text, outcome="")
                results.append(skip_record(result, record.reason, record.notes))
    return sorted(results, key=lambda result: result.number)


async def _import_suppressions(
    store: Store, actor: Actor, team: TeamRecord, lines: Sequence[SuppressionFileRow]
) -> list[ImportedRecord]:
    id_ = await _begin_import(store, actor, team, lines)
    await finish_import(store, team, id_)
    results, after = list[ImportedRecord](), -1
    while True:
        report = await store.imports.report(id_, after)
        for imported in report.lines:
            result = ImportedRecord(
                number=imported.line.number, kind="suppression", text=imported.line.text, outcome=imported.outcome
            )
            results.append(skip_record(result, imported.outcome) if imported.line.problem else result)
        if report.after is None:
            return results
        after = report.after


async def _import_domain(
    store: Store, domains: Domains, actor: Actor, team: str, number: int, name: str
) -> ImportedRecord:
    before = set(get_team(store.setup.current, team).domains)
    result = ImportedRecord(number=number, kind="domain", text=name, outcome="already there")
    try:
        domain = await domains.add(actor, team, name)
    except InvalidRequest as refusal:
        return skip_record(result, refusal.message)
    return result if domain.name in before else replace(result, outcome=f"added as {domain.id}")


async def _import_layout(
    store: Store, actor: Actor, team: str, number: int, exported: ExportedLayout
) -> ImportedRecord:
    team_setup, id_ = get_team(store.setup.current, team), _layout_id(store.setup.current, team, exported.local_id)
    result = ImportedRecord(number=number, kind="layout", text=exported.name, outcome=f"it is {id_} now")
    if id_ in team_setup.layouts:
        return replace(result, outcome=f"already there as {id_}")
    base = Layout(id=id_, team=team_setup.record.id, name=exported.name, status="draft")
    try:
        await layouts.save(store, actor, base, exported.content, publish=True, by_operator=True)
    except Refusal as refusal:
        notes = [
            str(problem)
            for problem in find_layout_problems(replace(base, **exported.content))
            if problem.level == "error"
        ]
        return skip_record(result, refusal.message, notes)
    return result


def _layout_id(setup: Setup, team: str, id_: str) -> str:
    """Return the id of an imported layout; the team's id is appended if another team's layout has the same id."""
    existing = setup.records.get(("layout", id_))
    return f"{id_}_{team}" if isinstance(existing, Layout) and existing.team != team else id_


async def _import_template(
    store: Store, actor: Actor, team: str, number: int, exported: ExportedTemplate
) -> ImportedRecord:
    existing = get_team(store.setup.current, team).templates
    is_id_free = exported.local_id and ("template", exported.local_id) not in store.setup.current.records
    templates_with_name = (
        template
        for template in existing.values()
        if (template.channel, template.name) == (exported.channel, exported.name)
    )
    # Several templates may share a name, for example one per language: the id distinguishes them.
    if not is_id_free and (same := existing.get(exported.local_id) or next(templates_with_name, None)):
        return ImportedRecord(number=number, kind="template", text=exported.name, outcome=f"already there as {same.id}")
    id_ = exported.local_id if is_id_free else store.clock.new_id("tpl_")
    result = ImportedRecord(number=number, kind="template", text=exported.name, outcome="", notes=exported.notes)
    if layout := exported.content.get("layout"):
        exported = replace(
            exported, content={**exported.content, "layout": _layout_id(store.setup.current, team, layout)}
        )
    edited = edit_exported(exported, id_, team)
    errors = [f"{field}: {line}" for field, error in edited.errors.items() for line in error.splitlines()]
    errors += [
        f"alias: {template.id} has it already"
        for template in existing.values()
        if template.alias == edited.template.alias != ""
    ]
    errors += map(str, layout_problems(edited.template, get_team(store.setup.current, team).layouts))
    if errors:
        return skip_record(result, "; ".join(errors))
    # Email may be free; an operator must set the price of other channels, unless the team has a similar template.
    await templates.save(store, actor, edited.template, revision=None, by_operator=exported.channel == "email")
    is_draft = get_team(store.setup.current, team).templates[id_].status == "draft"
    outcome = f"{exported.id} is {id_} now".strip() + (
        ", a draft until it is approved with its price" if is_draft else ""
    )
    return replace(result, outcome=outcome)
