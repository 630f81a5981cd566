"""`heliograph credit`: adds to or subtracts from a team's credit."""

import click

from heliograph.cli.options import STORE_FLAGS, with_settings, with_store
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.sending.pricing import format_money
from heliograph.manage.credit import Booking, book
from heliograph.settings import Settings
from heliograph.storage.store import Store


@click.command(context_settings={"ignore_unknown_options": True})  # parse -5.00 as an amount, not as an option
@with_settings(*STORE_FLAGS)
@click.argument("team")
@click.argument("amount")
@click.option("--note", metavar="TEXT", help="What it is for: an invoice's number, a reason.")
def credit(settings: Settings, team: str, amount: str, note: str | None) -> None:
    """Add AMOUNT to the credit of TEAM, or subtract it when it is negative.

    \b
    heliograph credit team_acme 25.00 --note "invoice 1042"
    heliograph credit team_acme -5.00 --note "booked twice"
    """
    wanted = Booking(team=team, amount=amount, note=note or "")

    async def story(store: Store) -> str:
        account = await book(store, COMMAND_LINE, wanted)
        currency = store.setup.current.teams[team].record.currency
        return f"{team} has a credit of {format_money(account.available)} {currency}"

    click.echo(with_store(settings, "Booking", story))
