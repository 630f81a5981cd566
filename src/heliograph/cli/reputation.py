"""`heliograph reputation`: shows bounces and complaints per team and lifts a reputation pause."""

from typing import Any

import click

from heliograph.cli.options import AS_JSON, STORE_FLAGS, ShowFirst, with_settings, with_store
from heliograph.cli.printing import show as show_list
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.reputation import Counts, Reputation, rates
from heliograph.domain.setup.records import Team
from heliograph.manage.teams import find_team, resume_direct
from heliograph.settings import Settings
from heliograph.storage.store import Store

Line = tuple[Team, Reputation | None, Counts]


@click.group(cls=ShowFirst)
def reputation() -> None:
    """Bounces and complaints of each team's email, and the end of a pause.

    \b
    heliograph reputation
    heliograph reputation team_acme
    heliograph reputation resume team_acme
    """


@reputation.command()
@with_settings(*STORE_FLAGS)
@click.argument("team", required=False)
@AS_JSON
def show(settings: Settings, team: str | None, as_json: bool) -> None:
    """Show rates and state of TEAM, or of every team that has sent in the last 7 days (the default command).

    \b
    heliograph reputation show team_acme
    """

    async def story(store: Store) -> list[Line]:
        counts = await store.reputation.counts()
        teams = [find_team(store.setup.current, team)] if team else store.setup.current.teams.values()
        known = store.reputation.current
        return [
            (found, known.get(found.record.id), counts.get(found.record.ref, Counts()))
            for found in teams
            if team or found.record.id in known or found.record.ref in counts
        ]

    none = "no email was sent in the last 7 days"
    show_list(as_json, with_store(settings, "Reading", story), _line, fields=_fields, none=none)


@reputation.command()
@with_settings(*STORE_FLAGS)
@click.argument("team")
def resume(settings: Settings, team: str) -> None:
    """Let TEAM send direct emails again; counting starts over.

    A running service follows within a second.

    \b
    heliograph reputation resume team_acme
    """

    done = with_store(settings, "Resuming", lambda store: resume_direct(store, COMMAND_LINE, team))
    click.echo(f"direct sends of {team} {'go on' if done else 'were not paused'}")


def _fields(line: Line) -> dict[str, Any]:
    team, record, counts = line
    since = timestamp(record.since) if record else None
    return {"team": team.record.id, "state": record.state if record else "ok", "since": since} | counts._asdict()


def _line(line: Line) -> str:
    team, record, counts = line
    state = f"{record.state} since {timestamp(record.since)}" if record else "ok"
    return f"{team.record.id}  {state}: {rates(counts)}"
