"""`heliograph suppression`: manages a team's suppression list."""

from pathlib import Path
from typing import Any

import click

from heliograph.cli.options import AS_JSON, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import show, tell
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.suppression_file import DEFAULT, REASONS
from heliograph.manage import imports, suppressions
from heliograph.manage.teams import find_team
from heliograph.settings import Settings
from heliograph.storage.imports import Import
from heliograph.storage.store import Store
from heliograph.storage.suppressions import START, End, SuppressionLine

_team = click.option("--team", required=True, metavar="TEAM", help="The team's id, team_….")


@click.group()
def suppression() -> None:
    """The suppression list of a team: addresses that it does not mail, because of a bounce, a complaint or by hand."""


@suppression.command("list")
@with_settings(*STORE_FLAGS)
@_team
@click.option("--search", default="", metavar="TEXT", help="Only addresses with this text in them.")
@AS_JSON
def list_(settings: Settings, team: str, search: str, as_json: bool) -> None:
    """Show the list, newest first.

    \b
    heliograph suppression list --team team_acme
    heliograph suppression list --team team_acme --search @example.com --json
    """

    async def story(store: Store) -> list[SuppressionLine]:
        ref, lines = find_team(store.setup.current, team).record.ref, list[SuppressionLine]()
        end: End | None = START
        while end is not None:
            page = await store.suppressions.search(ref, search.lower(), end, limit=1000)
            lines += page.lines
            end = page.end
        return lines

    lines = with_store(settings, "Reading", story)
    show(as_json, lines, _text, fields=_fields, indented=True)


def _text(x: SuppressionLine) -> str:
    return f"{x.shown:<40} {x.reason:<10} {timestamp(x.created_at)} {x.source_message_id or ''}".rstrip()


def _fields(x: SuppressionLine) -> dict[str, Any]:
    found = {"email": x.shown, "reason": x.reason, "source_message_id": x.source_message_id}
    return found | {"created_at": timestamp(x.created_at)}


@suppression.command()
@with_settings(*STORE_FLAGS)
@click.argument("email")
@_team
@click.option("--reason", type=click.Choice(REASONS), default=DEFAULT, show_default=True)
@AS_JSON
def add(settings: Settings, email: str, team: str, reason: str, as_json: bool) -> None:
    """Put EMAIL on the list: the team no longer mails it.

    \b
    heliograph suppression add ada@example.com --team team_acme --reason complaint
    """

    async def story(store: Store) -> bool:
        return await suppressions.add(store, COMMAND_LINE, find_team(store.setup.current, team).record, email, reason)

    is_new = with_store(settings, "Adding", story)
    text = f"{email} {'is on the list now' if is_new else 'was on the list already'}"
    tell(as_json, {"email": email, "added": is_new}, text, indented=True)


@suppression.command()
@with_settings(*STORE_FLAGS)
@click.argument("email")
@_team
@AS_JSON
def remove(settings: Settings, email: str, team: str, as_json: bool) -> None:
    """Take EMAIL off the list: the team can mail it again.

    Example: heliograph suppression remove ada@example.com --team team_acme
    """

    async def story(store: Store) -> None:
        await suppressions.remove(store, COMMAND_LINE, find_team(store.setup.current, team).record, email)

    with_store(settings, "Removing", story)
    tell(as_json, {"email": email, "removed": True}, f"{email} is off the list", indented=True)


@suppression.command("import")
@with_settings(*STORE_FLAGS)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@_team
@AS_JSON
def import_(settings: Settings, file: Path, team: str, as_json: bool) -> None:
    """Put every address of FILE on the list: CSV, an email address and a reason (or none) on each line.

    Lines that cannot be taken are left out. The page of the import in the dashboard says what became of each.

    \b
    heliograph suppression import bounced.csv --team team_acme
    """

    async def story(store: Store) -> Import:
        record = find_team(store.setup.current, team).record
        with file.open(encoding="utf-8-sig", newline="") as opened:
            id_ = await imports.begin(store, COMMAND_LINE, record, opened)
        return await imports.finish(store, record, id_)

    done = with_store(settings, "Importing", story)
    figures = {"lines": done.lines, "added": done.added, "already": done.known, "left_out": done.left_out}
    text = f"{done.id}: added {done.added}, on the list already {done.known}, left out {done.left_out}"
    tell(as_json, {"id": done.id, "state": done.state, **figures}, text, indented=True)
