"""`heliograph audit`: exports the audit log, prints the head of its hash chain, and checks a head recorded earlier."""

import sys
from datetime import UTC, datetime

import click
import msgspec

from heliograph.cli.options import AS_JSON, OF_TEAM, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import tell
from heliograph.domain.limits import SECOND_MS
from heliograph.manage.audit import to_record
from heliograph.settings import Settings
from heliograph.storage.audit import FOREVER, NEWEST, AuditFilter
from heliograph.storage.store import Store

DAY = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"])
PAGE = 500  # entries per query


@click.group()
def audit() -> None:
    """Export the audit log; print its end; check an end that was noted elsewhere.

    \b
    heliograph audit head
    heliograph audit check 1042 3f0c…
    heliograph audit export --since 2026-11-01 > audit.jsonl
    """


@audit.command()
@with_settings(*STORE_FLAGS)
@OF_TEAM
@click.option("--since", type=DAY, metavar="TIME", help="Entries from this UTC day or time on, such as 2026-11-01.")
@click.option("--until", type=DAY, metavar="TIME", help="Entries before this UTC day or time.")
def export(settings: Settings, team: str | None, since: datetime | None, until: datetime | None) -> None:
    """Write the audit log as JSON lines, newest first: one object for each entry.

    \b
    heliograph audit export --since 2026-11-01 --until 2026-12-01 > audit.jsonl
    """
    wanted = AuditFilter(since=_ms(since) if since else 0, until=_ms(until) if until else FOREVER)

    async def write(store: Store) -> None:
        before: int | None = NEWEST
        while before is not None:
            page = await store.audit.page(team, wanted, before, PAGE)
            for line in page.lines:
                click.echo(msgspec.json.encode(to_record(line)))
            before = page.after

    with_store(settings, "Reading", write)


def _ms(day: datetime) -> int:
    return int(day.replace(tzinfo=UTC).timestamp()) * SECOND_MS


@audit.command()
@with_settings(*STORE_FLAGS)
@AS_JSON
def head(settings: Settings, as_json: bool) -> None:
    """Print place and link of the newest entry: note them where nobody can change them who can change the database.

    \b
    heliograph audit head
    """
    end = with_store(settings, "Reading", lambda store: store.audit.end())
    if end is None:
        raise click.ClickException("the end of the chain was removed: heliograph doctor says what else was changed")
    tell(as_json, {"place": end.place, "link": end.link}, f"{end.place} {end.link}".strip())


@audit.command()
@with_settings(*STORE_FLAGS)
@click.argument("place", type=int)
@click.argument("link")
def check(settings: Settings, place: int, link: str) -> None:
    """Say whether the entry at PLACE still has this LINK. Exit code 1: the log was written anew since it was noted.

    Whether all between is as it was written says heliograph doctor.

    \b
    heliograph audit check 1042 3f0c…
    """
    found = with_store(settings, "Reading", lambda store: store.audit.link_at(place))
    if found == link:
        click.echo(f"entry {place} has this link")
        return
    there = f"its link is {found}" if found else "there is none"
    click.echo(f"entry {place} does not have this link: {there}. The log was written anew, or is of another database")
    sys.exit(1)
