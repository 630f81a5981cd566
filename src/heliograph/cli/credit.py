"""`heliograph credit`: adds to or subtracts from a team's credit."""

import click

from heliograph.cli.options import STORE_FLAGS, with_settings, with_store
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.sending.pricing import format_money
from heliograph.manage.credit import CreditAdjustment, adjust_credit
from heliograph.settings import Settings
from heliograph.storage.store import Store


@click.command(context_settings={"ignore_unknown_options": True})  # parse -5.00 as an amount, not as an option
@with_settings(*STORE_FLAGS)
@click.argument("team")
@click.argument("amount")
@click.option("--note", metavar="TEXT", help="Note, such as an invoice number or a reason.")
def credit(settings: Settings, team: str, amount: str, note: str | None) -> None:
    """Add AMOUNT to the credit of TEAM; a negative amount is subtracted.

    \b
    heliograph credit team_acme 25.00 --note "invoice 1042"
    heliograph credit team_acme -5.00 --note "charged twice"
    """
    adjustment = CreditAdjustment(team=team, amount=amount, note=note or "")

    async def adjust(store: Store) -> str:
        account = await adjust_credit(store, COMMAND_LINE, adjustment)
        currency = store.setup.current.teams[team].record.currency
        return f"{team} has a credit of {format_money(account.available)} {currency}"

    click.echo(with_store(settings, "Booking", adjust))
