"""`heliograph pause` and `heliograph resume`: pause and resume all delivery."""

import click

from heliograph.cli.options import STORE_FLAGS, with_settings, with_store
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.manage.pause import set_paused
from heliograph.settings import Settings


@click.command()
@with_settings(*STORE_FLAGS)
def pause(settings: Settings) -> None:
    """Pause delivery: messages are still accepted and stay queued.

    A running service applies the change within a second.

    Example: heliograph pause
    """
    with_store(settings, "Pausing", lambda store: set_paused(store, COMMAND_LINE, True))
    click.echo("Delivery is paused. To resume: heliograph resume")


@click.command()
@with_settings(*STORE_FLAGS)
def resume(settings: Settings) -> None:
    """Resume delivery after a pause: queued messages are sent.

    A running service applies the change within a second.

    Example: heliograph resume
    """
    with_store(settings, "Resuming", lambda store: set_paused(store, COMMAND_LINE, False))
    click.echo("Delivery resumed.")
