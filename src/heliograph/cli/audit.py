"""`heliograph audit`: the end of the audit log's chain, and whether an end that was noted is still in it."""

import sys

import click

from heliograph.cli.options import AS_JSON, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import tell
from heliograph.settings import Settings


@click.group()
def audit() -> None:
    """The end of the audit log, and whether one that was noted elsewhere is still in it.

    \b
    heliograph audit head
    heliograph audit check 1042 3f0c…
    """


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
