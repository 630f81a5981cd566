"""`heliograph secret`: what to do when the master secret is lost."""

import click

from heliograph.cli.options import STORE_FLAGS, with_settings, with_store
from heliograph.manage.secret import replace as replace_secret
from heliograph.opening import make_secrets
from heliograph.rules.audit import COMMAND_LINE
from heliograph.settings import Settings
from heliograph.storage.store import Store


@click.group()
def secret() -> None:
    """Use another master secret when the old one is lost."""


@secret.command()
@with_settings(*STORE_FLAGS)
def replace(settings: Settings) -> None:
    """Make the database use the master secret that is here; without one, make it.

    What the old one sealed can no longer be opened: secrets of carriers and webhooks, DKIM keys, codes at sign-in.
    Each says so where it is needed, and can be set again. Put the old secret back instead if you still have it.

    \b
    heliograph secret replace
    """

    async def story(store: Store) -> bool:
        return await replace_secret(store, COMMAND_LINE, make_secrets(settings).digest)

    if with_store(settings, "Replacing the secret", story):
        click.echo("The database uses this secret now. Apply carriers again, rotate webhooks and DKIM keys.")
    else:
        click.echo("The database uses this secret already: nothing changed.")
