"""`heliograph team`: manages the teams of the instance."""

import click
import msgspec

from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import print_list, print_result
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.sending.pricing import format_money
from heliograph.manage import teams
from heliograph.settings import Settings
from heliograph.storage.store import Store


class TeamSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    mode: str
    suspended: bool
    credit: str
    currency: str


@click.group()
def team() -> None:
    """List, create and suspend teams, or take them live.

    All other team settings are in the setup file: heliograph apply
    """


@team.command("list")
@with_settings(*STORE_FLAGS)
@JSON_OPTION
def list_(settings: Settings, as_json: bool) -> None:
    """List the teams by id.

    \b
    heliograph team list
    heliograph team list --json | jq -r '.data[].id'
    """

    async def read_summaries(store: Store) -> list[TeamSummary]:
        records = [team.record for _, team in sorted(store.setup.current.teams.items())]
        accounts = await store.ledger.find_accounts(record.ref for record in records)
        return [
            TeamSummary(
                id=record.id,
                name=record.name,
                mode=record.mode,
                suspended=record.suspended,
                credit=format_money(accounts[record.ref].available),
                currency=record.currency,
            )
            for record in records
        ]

    summaries = with_store(settings, "Reading", read_summaries)
    empty_text = "There are no teams yet: heliograph team create, or heliograph apply."
    print_list(as_json, summaries, _format_team, empty_text=empty_text)


def _format_team(summary: TeamSummary) -> str:
    state = "suspended" if summary.suspended else summary.mode
    return f"{summary.id:<24} {state:<10} {summary.credit:>12} {summary.currency}  {summary.name}"


@team.command()
@with_settings(*STORE_FLAGS)
@click.argument("id_", metavar="TEAM")
@click.option("--name", help="Display name. Default: the id.")
@click.option("--currency", help="Cannot be changed later. Default: USD.")
@click.option("--credit", metavar="AMOUNT", help="Initial credit, such as 25.00.")
@JSON_OPTION
def create(settings: Settings, id_: str, as_json: bool, **options: str | None) -> None:
    """Create a team with the id TEAM, such as team_acme. It starts in the sandbox.

    \b
    heliograph team create team_acme --name Acme --credit 25.00
    heliograph key create --team team_acme
    """
    fields = {"id": id_} | {name: value for name, value in options.items() if value is not None}
    created = with_store(settings, "Creating the team", lambda store: teams.create(store, COMMAND_LINE, fields))
    record = {"id": created.id, "name": created.name, "mode": created.mode, "currency": created.currency}
    print_result(as_json, record, f"{created.id} created, in the sandbox")


@team.command()
@with_settings(*STORE_FLAGS)
@click.argument("id_", metavar="TEAM")
def suspend(settings: Settings, id_: str) -> None:
    """Suspend TEAM: requests with its keys are refused, and its members have read-only access.

    A running service applies the change within a second.

    Example: heliograph team suspend team_acme
    """
    with_store(settings, "Suspending", lambda store: teams.set_suspended(store, COMMAND_LINE, id_, True))
    click.echo(f"{id_} is suspended")


@team.command()
@with_settings(*STORE_FLAGS)
@click.argument("id_", metavar="TEAM")
def resume(settings: Settings, id_: str) -> None:
    """Let TEAM send again after a suspension.

    Example: heliograph team resume team_acme
    """
    with_store(settings, "Resuming", lambda store: teams.set_suspended(store, COMMAND_LINE, id_, False))
    click.echo(f"{id_} can send again")


@team.command()
@with_settings(*STORE_FLAGS)
@click.argument("id_", metavar="TEAM")
def live(settings: Settings, id_: str) -> None:
    """Take TEAM live: its messages are delivered for real and charged. Needs a verified and approved domain.

    Example: heliograph team live team_acme
    """
    with_store(settings, "Going live", lambda store: teams.go_live(store, COMMAND_LINE, id_))
    click.echo(f"{id_} is live")


@team.command()
@with_settings(*STORE_FLAGS)
@click.argument("id_", metavar="TEAM")
def sandbox(settings: Settings, id_: str) -> None:
    """Return TEAM to the sandbox; messages accepted while live are still delivered and charged.

    Example: heliograph team sandbox team_acme
    """
    with_store(settings, "Changing", lambda store: teams.return_to_sandbox(store, COMMAND_LINE, id_))
    click.echo(f"{id_} is in the sandbox")
