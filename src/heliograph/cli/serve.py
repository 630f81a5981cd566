"""`heliograph serve`: runs the service in one or several processes."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from heliograph import server
from heliograph.cli.options import SERVE_FLAGS, clear_mistakes, with_settings
from heliograph.manage.people import first_link
from heliograph.runtime import logs, metrics
from heliograph.runtime.processes import COMMAND, Parent, Place
from heliograph.settings import Settings
from heliograph.storage.store import Store
from heliograph.texts.dashboard_links import of_link


@click.command()
@with_settings(*SERVE_FLAGS)
@click.option(
    "--role",
    type=click.Choice(["all", "api", "worker"]),
    default="all",
    show_default=True,
    help="api answers requests, worker delivers, all does both in each process.",
)
@click.option("--among", hidden=True)
def serve(settings: Settings, role: str, among: str | None) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    It waits for the database and migrates it first. Stopping finishes what is under way; nothing is lost or repeated.
    On SIGTERM /readyz answers 503 for five seconds before the stop, so that proxies look elsewhere.

    One process uses one core. --processes N runs several, all on one address, each answering and delivering. One that
    dies is started again. SIGHUP replaces them one after the other without refusing a request, for example after an
    upgrade or a change of the --config file.

    \b
    heliograph serve --listen 0.0.0.0:8700 --database postgresql://heliograph@db/heliograph
    heliograph serve --processes 4
    heliograph serve --role worker
    """
    place = msgspec.json.decode(among, type=Place) if among else None
    count = settings.processes

    async def ready(settings: Settings, store: Store) -> None:
        asks = role != "worker" and (place is None or place.greets)
        link = await first_link(store) if asks else None
        where = "delivering" if role == "worker" else f"listening on {settings.base_url}"
        many = f", processes: {count}" if count > 1 else ""
        said = [f"Heliograph is {where} (role: {role}{many})."]
        if places := settings.submission():
            said.append(f"Mail by SMTP: {', '.join(places)}")
        if link:
            said.append(f"First operator: {settings.base_url}{of_link(link)}")
        if place is None:
            click.echo("\n".join(said))
        else:
            os.write(place.control, msgspec.json.encode(said) + b"\n")

    if place is None and count > 1:
        sys.exit(run_many(settings, role, count))
    run(settings, role, ready, place)


def run(
    settings: Settings, role: str, ready: server.Ready, place: Place | None = None, *, test_token: str = ""
) -> None:
    """Run the service in this process until stopped; `ready` is called with the bound addresses."""
    try:
        with clear_mistakes(settings):
            asyncio.run(server.serve(settings, role, ready, place, test_token=test_token))
    except server.CannotListen as error:
        raise click.ClickException(str(error)) from error


def run_many(settings: Settings, role: str, count: int) -> int:
    """Bind the sockets, run `count` child processes, and return the exit code."""
    try:
        sockets = server.bind(settings, role)
    except server.CannotListen as error:
        raise click.ClickException(str(error)) from error

    async def supervise() -> int:
        logs.configure(asyncio.get_running_loop().time, form=settings.log_format)
        command = [*COMMAND, *sys.argv[1:]]
        return await Parent(count, sockets, greet=_greet, command=command).run()

    with tempfile.TemporaryDirectory(prefix="heliograph-metrics-") as folder:
        metrics.share(Path(folder))
        return asyncio.run(supervise())


def _greet(said: str) -> None:
    click.echo("\n".join(msgspec.json.decode(said, type=list[str])))
