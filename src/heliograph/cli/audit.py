"""`heliograph audit`: exports the audit log, prints the newest link of its hash chain, and checks a recorded link."""

import sys
from datetime import UTC, datetime

import click
import msgspec

from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, TEAM_OPTION, DefaultGroup, with_settings, with_store
from heliograph.cli.printing import print_result
from heliograph.domain.limits import SECOND_MS
from heliograph.manage.audit import to_record
from heliograph.manage.teams import get_team
from heliograph.settings import Settings
from heliograph.storage.audit import LATEST_TIME, NEWEST, AuditFilter
from heliograph.storage.store import Store

DAY_OR_TIME = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"])
PAGE = 500  # entries per query


@click.group(cls=DefaultGroup, default_command="export")
def audit() -> None:
    """Export the audit log (the default), print the head of its hash chain, or check a recorded head.

    \b
    heliograph audit
    heliograph audit head
    heliograph audit check 1042 3f0c…
    heliograph audit export --since 2026-11-01 > audit.jsonl
    """


@audit.command()
@with_settings(*STORE_FLAGS)
@TEAM_OPTION
@click.option(
    "--since", type=DAY_OR_TIME, metavar="TIME", help="Only entries from this UTC date or time on, such as 2026-11-01."
)
@click.option("--until", type=DAY_OR_TIME, metavar="TIME", help="Only entries before this UTC date or time.")
def export(settings: Settings, team: str | None, since: datetime | None, until: datetime | None) -> None:
    """Print the audit log as JSON lines, newest first, one object per entry.

    \b
    heliograph audit export --since 2026-11-01 --until 2026-12-01 > audit.jsonl
    """
    entry_filter = AuditFilter(since=_to_ms(since) if since else 0, until=_to_ms(until) if until else LATEST_TIME)

    async def print_entries(store: Store) -> None:
        before: int | None = NEWEST
        is_empty = True
        while before is not None:
            page = await store.audit.list_page(team, entry_filter, before, PAGE)
            for entry in page.rows:
                click.echo(msgspec.json.encode(to_record(entry)))
            before, is_empty = page.after, is_empty and not page.rows
        if team is not None and is_empty:  # checked last, because a deleted team still has entries
            get_team(store.setup.current, team)

    with_store(settings, "Reading", print_entries)


def _to_ms(day: datetime) -> int:
    return int(day.replace(tzinfo=UTC).timestamp()) * SECOND_MS


@audit.command()
@with_settings(*STORE_FLAGS)
@JSON_OPTION
def head(settings: Settings, as_json: bool) -> None:
    """Print position and hash of the newest entry.

    Record them where nobody with access to the database can change them.

    \b
    heliograph audit head
    """
    newest_link = with_store(settings, "Reading", lambda store: store.audit.head())
    if newest_link is None:
        raise click.ClickException("the newest audit log entries were removed: run heliograph doctor for details")
    fields = {"position": newest_link.position, "hash": newest_link.link}
    print_result(as_json, fields, f"{newest_link.position} {newest_link.link}".strip())


@audit.command()
@with_settings(*STORE_FLAGS)
@click.argument("position", metavar="POSITION", type=int)
@click.argument("link", metavar="HASH")
def check(settings: Settings, position: int, link: str) -> None:
    """Check that the entry at POSITION still has this HASH.

    Exit code 1: the log was rewritten since you recorded the hash, or this is another database. This compares one
    entry only; heliograph doctor checks the whole chain.

    \b
    heliograph audit check 1042 3f0c…
    """
    actual = with_store(settings, "Reading", lambda store: store.audit.find_link(position))
    if actual == link:
        click.echo(f"entry {position} has this hash")
        return
    detail = f"its hash is {actual}" if actual else "the entry does not exist"
    click.echo(
        f"entry {position} does not have this hash: {detail}. The log was rewritten, or belongs to another database"
    )
    sys.exit(1)
