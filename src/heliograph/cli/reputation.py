"""`heliograph reputation`: bounces and complaints of each team, and the end of a pause."""

import click

from heliograph.cli.options import STORE_FLAGS, ShowFirst, with_settings, with_store
from heliograph.manage.teams import find_team, resume_direct
from heliograph.rules.audit import COMMAND_LINE
from heliograph.rules.ids import timestamp
from heliograph.rules.mail.reputation import Counts, Reputation, rates
from heliograph.rules.setup.records import Team
from heliograph.settings import Settings
from heliograph.storage.store import Store


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
def show(settings: Settings, team: str | None) -> None:
    """Show rates and state of TEAM, or of every team that has sent in the last 7 days (the default command).

    \b
    heliograph reputation show team_acme
    """

    async def story(store: Store) -> list[str]:
        counts = await store.reputation.counts()
        teams = [find_team(store.setup.current, team)] if team else store.setup.current.teams.values()
        known = store.reputation.current
        return [
            _line(found, known.get(found.record.id), counts.get(found.record.ref, Counts()))
            for found in teams
            if team or found.record.id in known or found.record.ref in counts
        ]

    for line in with_store(settings, "Reading", story) or ["no email was sent in the last 7 days"]:
        click.echo(line)


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


def _line(team: Team, record: Reputation | None, counts: Counts) -> str:
    state = f"{record.state} since {timestamp(record.since)}" if record else "ok"
    return f"{team.record.id}  {state}: {rates(counts)}"
