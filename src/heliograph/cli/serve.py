"""`heliograph serve`: the service itself."""

import asyncio

import click

from heliograph import server
from heliograph.cli.options import FLAGS, clear_mistakes, with_settings
from heliograph.manage.people import first_link
from heliograph.settings import Settings
from heliograph.storage.store import Store


@click.command()
@with_settings(*FLAGS)
@click.option(
    "--role",
    type=click.Choice(["all", "api", "worker"]),
    default="all",
    show_default=True,
    help="api answers requests, worker delivers, all does both in one process.",
)
def serve(settings: Settings, role: str) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    It waits for the database and migrates it first. Stopping finishes what is under way; nothing is lost or repeated.

    \b
    heliograph serve --listen 0.0.0.0:8700 --database postgresql://heliograph@db/heliograph
    heliograph serve --role worker
    """

    async def ready(settings: Settings, store: Store) -> None:
        link = await first_link(store) if role != "worker" else None
        where = "delivering" if role == "worker" else f"listening on {settings.base_url}"
        click.echo(f"Heliograph is {where} (role: {role}).")
        if link:
            click.echo(f"First operator: {settings.base_url}/dashboard/link/{link}")

    run(settings, role, ready)


def run(settings: Settings, role: str, ready: server.Ready) -> None:
    """Serve until stopped; `ready` is called with the actual addresses."""
    try:
        with clear_mistakes(settings):
            asyncio.run(server.serve(settings, role, ready))
    except server.CannotListen as error:
        raise click.ClickException(str(error)) from error
