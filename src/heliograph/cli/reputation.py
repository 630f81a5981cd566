"""`heliograph reputation`: shows bounces and complaints per team and lifts a reputation pause."""

from typing import Any

import click

from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, DefaultGroup, with_settings, with_store
from heliograph.cli.printing import print_list as show_list
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.reputation import Counts, Reputation, describe_rates
from heliograph.domain.setup.records import Team
from heliograph.manage.teams import get_team, resume_direct_sends
from heliograph.settings import Settings
from heliograph.storage.store import Store

ReputationRow = tuple[Team, Reputation | None, Counts]


@click.group(cls=DefaultGroup)
def reputation() -> None:
    """Show bounce and complaint rates of each team, and resume paused teams.

    \b
    heliograph reputation
    heliograph reputation team_acme
    heliograph reputation resume team_acme
    """


@reputation.command()
@with_settings(*STORE_FLAGS)
@click.argument("team", required=False)
@JSON_OPTION
def show(settings: Settings, team: str | None, as_json: bool) -> None:
    """Show rates and state of TEAM, or of every team with emails in the last 7 days (default command).

    \b
    heliograph reputation show team_acme
    """

    async def read_rows(store: Store) -> list[ReputationRow]:
        counts = await store.reputations.read_counts()
        teams = [get_team(store.setup.current, team)] if team else store.setup.current.teams.values()
        states = store.reputations.current
        return [
            (item, states.get(item.record.id), counts.get(item.record.ref, Counts()))
            for item in teams
            if team or item.record.id in states or item.record.ref in counts
        ]

    empty_text = "no email was sent in the last 7 days"
    show_list(as_json, with_store(settings, "Reading", read_rows), _format_row, fields=_row_json, empty_text=empty_text)


@reputation.command()
@with_settings(*STORE_FLAGS)
@click.argument("team")
def resume(settings: Settings, team: str) -> None:
    """Let TEAM send direct emails again; its counters restart at zero.

    A running service applies the change within a second.

    \b
    heliograph reputation resume team_acme
    """
    is_resumed = with_store(settings, "Resuming", lambda store: resume_direct_sends(store, COMMAND_LINE, team))
    click.echo(f"direct sends of {team} {'are resumed' if is_resumed else 'were not paused'}")


def _row_json(row: ReputationRow) -> dict[str, Any]:
    team, record, counts = row
    since = timestamp(record.since) if record else None
    return {"team": team.record.id, "state": record.state if record else "ok", "since": since} | counts._asdict()


def _format_row(row: ReputationRow) -> str:
    team, record, counts = row
    state = f"{record.state} since {timestamp(record.since)}" if record else "ok"
    return f"{team.record.id}  {state}: {describe_rates(counts)}"
