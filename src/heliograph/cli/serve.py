"""`heliograph serve`: the service itself."""

import asyncio

import click

from heliograph import server
from heliograph.cli.options import FLAGS, clear_mistakes, with_settings
from heliograph.settings import Settings


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

    It migrates the database first. Stopping finishes what is under way; nothing is lost or repeated.

    \b
    heliograph serve --listen 0.0.0.0:8700 --database postgresql://heliograph@db/heliograph
    heliograph serve --role worker
    """

    def ready(settings: Settings) -> None:
        where = "delivering" if role == "worker" else f"listening on {settings.base_url}"
        click.echo(f"Heliograph is {where} (role: {role}).")

    with clear_mistakes(settings):
        asyncio.run(server.serve(settings, role, ready))
