"""`heliograph credit`: top up a team's credit, or correct it."""

import click

from heliograph.cli.options import STORE_FLAGS, with_settings, with_store
from heliograph.clock import Clock
from heliograph.rules.audit import COMMAND_LINE
from heliograph.rules.pricing import format_money, parse_booking
from heliograph.settings import Settings
from heliograph.storage import ledger
from heliograph.storage.store import Store


@click.command(context_settings={"ignore_unknown_options": True})  # so that -5.00 is an amount
@with_settings(*STORE_FLAGS)
@click.argument("team")
@click.argument("amount")
@click.option("--note", metavar="TEXT", help="What it is for: an invoice's number, a reason.")
def credit(settings: Settings, team: str, amount: str, note: str | None) -> None:
    """Add AMOUNT to the credit of TEAM, or take it when it is negative.

    \b
    heliograph credit team_acme 25.00 --note "invoice 1042"
    heliograph credit team_acme -5.00 --note "booked twice"
    """
    try:
        booked = parse_booking(amount)
    except ValueError as error:
        raise click.ClickException(str(error)) from None

    async def story(store: Store) -> str:
        found = store.setup.current.teams.get(team)
        if found is None:
            raise click.ClickException(f"there is no team {team!r}")
        audit = COMMAND_LINE.did(
            at=Clock().now(), team=team, action="credit.book", subject=format_money(booked), detail=note or ""
        )
        try:
            account = await store.database.write(
                lambda tx: ledger.book_credit(tx, found.record.ref, booked, note, audit)
            )
        except ValueError as error:
            raise click.ClickException(str(error)) from None
        return f"{team} has a credit of {format_money(account.available)} {found.record.currency}"

    click.echo(with_store(settings, "Booking", story))
