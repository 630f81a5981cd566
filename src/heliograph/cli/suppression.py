"""`heliograph suppression`: manages a team's suppression list."""

from pathlib import Path
from typing import Any

import click

from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import print_list, print_result
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.suppression_file import DEFAULT_REASON, REASONS
from heliograph.manage import imports, suppressions
from heliograph.manage.teams import get_team
from heliograph.settings import Settings
from heliograph.storage.imports import Import
from heliograph.storage.store import Store
from heliograph.storage.suppressions import FIRST_PAGE, PageCursor, SuppressionRow

_TEAM_OPTION = click.option("--team", required=True, metavar="TEAM", help="The team's id, team_….")


@click.group()
def suppression() -> None:
    """Manage a team's suppression list: addresses that bounced, complained or were added manually."""


@suppression.command("list")
@with_settings(*STORE_FLAGS)
@_TEAM_OPTION
@click.option("--search", default="", metavar="TEXT", help="Only addresses that contain this text.")
@JSON_OPTION
def list_(settings: Settings, team: str, search: str, as_json: bool) -> None:
    """List suppressed addresses, newest first.

    \b
    heliograph suppression list --team team_acme
    heliograph suppression list --team team_acme --search @example.com --json
    """

    async def read_rows(store: Store) -> list[SuppressionRow]:
        ref, rows = get_team(store.setup.current, team).record.ref, list[SuppressionRow]()
        end: PageCursor | None = FIRST_PAGE
        while end is not None:
            page = await store.suppressions.search(ref, search.lower(), end, limit=1000)
            rows += page.rows
            end = page.next_cursor
        return rows

    rows = with_store(settings, "Reading", read_rows)
    print_list(as_json, rows, _format_row, fields=_row_json, indented=True)


def _format_row(row: SuppressionRow) -> str:
    return (
        f"{row.shown_address:<40} {row.reason:<10} {timestamp(row.created_at)} {row.source_message_id or ''}".rstrip()
    )


def _row_json(row: SuppressionRow) -> dict[str, Any]:
    fields = {"email": row.shown_address, "reason": row.reason, "source_message_id": row.source_message_id}
    return fields | {"created_at": timestamp(row.created_at)}


@suppression.command()
@with_settings(*STORE_FLAGS)
@click.argument("email")
@_TEAM_OPTION
@click.option("--reason", type=click.Choice(REASONS), default=DEFAULT_REASON, show_default=True)
@JSON_OPTION
def add(settings: Settings, email: str, team: str, reason: str, as_json: bool) -> None:
    """Add EMAIL to the suppression list: the team can no longer send to it.

    \b
    heliograph suppression add ada@example.com --team team_acme --reason complaint
    """

    async def add_email(store: Store) -> bool:
        return await suppressions.add(store, COMMAND_LINE, get_team(store.setup.current, team).record, email, reason)

    is_new = with_store(settings, "Adding", add_email)
    text = f"{email} {'added to the suppression list' if is_new else 'is already on the suppression list'}"
    print_result(as_json, {"email": email, "added": is_new}, text, indented=True)


@suppression.command()
@with_settings(*STORE_FLAGS)
@click.argument("email")
@_TEAM_OPTION
@JSON_OPTION
def remove(settings: Settings, email: str, team: str, as_json: bool) -> None:
    """Remove EMAIL from the suppression list: the team can send to it again.

    Example: heliograph suppression remove ada@example.com --team team_acme
    """

    async def remove_email(store: Store) -> None:
        await suppressions.remove(store, COMMAND_LINE, get_team(store.setup.current, team).record, email)

    with_store(settings, "Removing", remove_email)
    print_result(
        as_json, {"email": email, "removed": True}, f"{email} removed from the suppression list", indented=True
    )


@suppression.command("import")
@with_settings(*STORE_FLAGS)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@_TEAM_OPTION
@JSON_OPTION
def import_(settings: Settings, file: Path, team: str, as_json: bool) -> None:
    """Import suppressed addresses from a CSV FILE with an email address and an optional reason per line.

    Invalid lines are skipped. The import's page in the dashboard shows the result of each line.

    \b
    heliograph suppression import bounced.csv --team team_acme
    """

    async def import_file(store: Store) -> Import:
        record = get_team(store.setup.current, team).record
        with file.open(encoding="utf-8-sig", newline="") as stream:
            id_ = await imports.begin_suppression_import(store, COMMAND_LINE, record, stream)
        return await imports.finish_import(store, record, id_)

    result = with_store(settings, "Importing", import_file)
    counts = {
        "lines": result.lines,
        "added": result.added,
        "existing": result.already_listed,
        "skipped": result.skipped,
    }
    text = f"{result.id}: added {result.added}, existing {result.already_listed}, skipped {result.skipped}"
    print_result(as_json, {"id": result.id, "state": result.state, **counts}, text, indented=True)
