"""`heliograph team`: manages the teams of the instance."""

import click
import msgspec

from heliograph.cli.options import AS_JSON, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import show, tell
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.sending.pricing import format_money
from heliograph.manage import teams
from heliograph.settings import Settings
from heliograph.storage.store import Store


class TeamLine(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    mode: str
    suspended: bool
    credit: str
    currency: str


@click.group()
def team() -> None:
    """Teams: list them, make one, suspend it, take it live.

    Everything else about a team is in the setup file: heliograph apply
    """


@team.command("list")
@with_settings(*STORE_FLAGS)
@AS_JSON
def list_(settings: Settings, as_json: bool) -> None:
    """List the teams by id.

    \b
    heliograph team list
    heliograph team list --json | jq -r '.teams[].id'
    """

    async def story(store: Store) -> list[TeamLine]:
        records = [team.record for _, team in sorted(store.setup.current.teams.items())]
        accounts = await store.ledger.accounts(record.ref for record in records)
        return [
            TeamLine(
                id=record.id,
                name=record.name,
                mode=record.mode,
                suspended=record.suspended,
                credit=format_money(accounts[record.ref].available),
                currency=record.currency,
            )
            for record in records
        ]

    lines = with_store(settings, "Reading", story)
    none = "There are no teams yet: heliograph team create, or heliograph apply."
    show(as_json, lines, _text, none=none)


def _text(line: TeamLine) -> str:
    state = "suspended" if line.suspended else line.mode
    return f"{line.id:<24} {state:<10} {line.credit:>12} {line.currency}  {line.name}"


@team.command()
@with_settings(*STORE_FLAGS)
@click.argument("id_", metavar="TEAM")
@click.option("--name", help="The name people see. Default: the id.")
@click.option("--currency", help="Cannot be changed later. Default: USD.")
@click.option("--credit", metavar="AMOUNT", help="Its opening credit, such as 25.00.")
@AS_JSON
def create(settings: Settings, id_: str, as_json: bool, **given: str | None) -> None:
    """Make a team with the id TEAM, such as team_acme. It starts in the sandbox.

    \b
    heliograph team create team_acme --name Acme --credit 25.00
    heliograph key create --team team_acme
    """
    wanted = {"id": id_} | {name: value for name, value in given.items() if value is not None}
    made = with_store(settings, "Making the team", lambda store: teams.create(store, COMMAND_LINE, wanted))
    shown = {"id": made.id, "name": made.name, "mode": made.mode, "currency": made.currency}
    tell(as_json, shown, f"{made.id} is made, in the sandbox")


@team.command()
@with_settings(*STORE_FLAGS)
@click.argument("id_", metavar="TEAM")
def suspend(settings: Settings, id_: str) -> None:
    """Suspend TEAM: every request of its keys is refused, and its people can only look.

    A running service follows within a second. Example: heliograph team suspend team_acme
    """
    with_store(settings, "Suspending", lambda store: teams.set_suspended(store, COMMAND_LINE, id_, True))
    click.echo(f"{id_} is suspended")


@team.command()
@with_settings(*STORE_FLAGS)
@click.argument("id_", metavar="TEAM")
def resume(settings: Settings, id_: str) -> None:
    """Let TEAM send again after a suspension. Example: heliograph team resume team_acme"""
    with_store(settings, "Resuming", lambda store: teams.set_suspended(store, COMMAND_LINE, id_, False))
    click.echo(f"{id_} may send again")


@team.command()
@with_settings(*STORE_FLAGS)
@click.argument("id_", metavar="TEAM")
def live(settings: Settings, id_: str) -> None:
    """Take TEAM live: what it sends then reaches people and costs money. It needs a domain that is verified and
    approved.

    Example: heliograph team live team_acme
    """
    with_store(settings, "Going live", lambda store: teams.go_live(store, COMMAND_LINE, id_))
    click.echo(f"{id_} is live")


@team.command()
@with_settings(*STORE_FLAGS)
@click.argument("id_", metavar="TEAM")
def sandbox(settings: Settings, id_: str) -> None:
    """Put TEAM back into the sandbox; what was accepted live is still delivered and charged.

    Example: heliograph team sandbox team_acme
    """
    with_store(settings, "Changing", lambda store: teams.leave_live(store, COMMAND_LINE, id_))
    click.echo(f"{id_} is in the sandbox")
