"""`heliograph pause` and `heliograph resume`: delivery held back by an operator."""

import click

from heliograph.cli.options import STORE_FLAGS, with_settings, with_store
from heliograph.rules.setup.snapshot import pause_rows
from heliograph.settings import Settings
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store


@click.command()
@with_settings(*STORE_FLAGS)
def pause(settings: Settings) -> None:
    """Pause delivery: messages are still accepted, and wait as `queued`.

    A running service follows within a second. Example: heliograph pause
    """
    _set_paused(settings, True)
    click.echo("Delivery is paused. Go on with: heliograph resume")


@click.command()
@with_settings(*STORE_FLAGS)
def resume(settings: Settings) -> None:
    """Resume delivery after a pause: what waited is sent.

    A running service follows within a second. Example: heliograph resume
    """
    _set_paused(settings, False)
    click.echo("Delivery goes on.")


def _set_paused(settings: Settings, paused: bool) -> None:
    async def story(store: Store) -> None:
        await store.setup.change(lambda current, _: SetupChange(rows=pause_rows(current, paused)))

    with_store(settings, "Pausing" if paused else "Resuming", story)
