"""`heliograph serve`: runs the service in one or several processes."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from heliograph import server
from heliograph.cli.options import SERVE_FLAGS, readable_errors, with_settings
from heliograph.manage.people import make_first_link
from heliograph.runtime import logs, metrics
from heliograph.runtime.processes import COMMAND, ChildStart, ProcessGroup, run_groups
from heliograph.settings import CELL_VARIABLE, Settings, settings_of_cell
from heliograph.storage.store import Store
from heliograph.texts.dashboard_links import sign_in_link_page


@click.command()
@with_settings(*SERVE_FLAGS, several_cells=True)
@click.option(
    "--role",
    type=click.Choice(["all", "api", "worker"]),
    default="all",
    show_default=True,
    help="api serves requests, worker delivers, all does both in each process.",
)
@click.option("--among", hidden=True)
def serve(settings: Settings, role: str, among: str | None) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Waits for the database and migrates it first. On stop, work in progress is finished; nothing is lost or repeated.
    On SIGTERM, /readyz returns 503 for five seconds before the stop, so that proxies use other instances.

    One process uses one core. --processes N runs several processes on the same address. A process that dies is
    restarted. SIGHUP replaces the processes one by one without refusing requests, for example after an upgrade or a
    change of the --config file.

    With HELIOGRAPH_CELLS=cell_01,cell_02 each cell has processes of its own, on consecutive ports.

    \b
    heliograph serve --listen 0.0.0.0:8700 --database postgresql://heliograph@db/heliograph
    heliograph serve --processes 4
    heliograph serve --role worker
    """
    child_start = msgspec.json.decode(among, type=ChildStart) if among else None
    count = settings.processes

    async def print_ready_line(settings: Settings, store: Store) -> None:
        wants_link = role != "worker" and (child_start is None or child_start.offers_first_link)
        link = await make_first_link(store) if wants_link else None
        where = "delivering" if role == "worker" else f"listening on {settings.base_url}"
        process_count = f", processes: {count}" if count > 1 else ""
        cell = f", cell: {settings.cell}" if settings.cell else ""
        lines = [f"Heliograph is {where} (role: {role}{process_count}{cell})."]
        if smtp_addresses := settings.submission():
            lines.append(f"Mail by SMTP: {', '.join(smtp_addresses)}")
        if link:
            lines.append(f"First operator: {settings.base_url}{sign_in_link_page(link)}")
        if child_start is None:
            click.echo("\n".join(lines))
        else:
            os.write(child_start.control, msgspec.json.encode(lines) + b"\n")

    if child_start is None and (count > 1 or (not settings.cell and settings.cells)):
        sys.exit(run_many(settings, role, count))
    run(settings, role, print_ready_line, child_start)


def run(
    settings: Settings,
    role: str,
    on_ready: server.ReadyCallback,
    child_start: ChildStart | None = None,
    *,
    test_token: str = "",
) -> None:
    """Run the service in this process until stopped. `ready` is called when all addresses are bound."""
    try:
        with readable_errors(settings):
            asyncio.run(server.serve(settings, role, on_ready, child_start, test_token=test_token))
    except server.CannotListen as error:
        raise click.ClickException(str(error)) from error


def run_many(settings: Settings, role: str, count: int) -> int:
    """Bind the sockets, run `count` child processes for each cell, and return the exit code."""
    cells = (settings.cell,) if settings.cell else settings.cells
    try:
        sockets_by_cell = {
            cell: server.bind(settings if cell == settings.cell else settings_of_cell(settings, cell), role)
            for cell in cells or ("",)
        }
    except server.CannotListen as error:
        raise click.ClickException(str(error)) from error

    async def supervise(folder: Path) -> int:
        logs.configure(asyncio.get_running_loop().time, log_format=settings.log_format)
        groups = []
        for cell, sockets in sockets_by_cell.items():
            metrics_folder = folder / cell
            metrics_folder.mkdir(exist_ok=True)
            groups.append(
                ProcessGroup(
                    count,
                    sockets,
                    greet=_print_greeting,
                    command=[*COMMAND, *sys.argv[1:]],
                    environment={
                        **metrics.shared_folder_environment(metrics_folder),
                        **({CELL_VARIABLE: cell} if cell else {}),
                    },
                    gives_up=len(sockets_by_cell) == 1,  # otherwise a fault of one cell would stop the others
                    cell=cell,
                )
            )
        return await run_groups(groups)

    with tempfile.TemporaryDirectory(prefix="heliograph-metrics-") as folder:
        return asyncio.run(supervise(Path(folder)))


def _print_greeting(encoded: str) -> None:
    click.echo("\n".join(msgspec.json.decode(encoded, type=list[str])))
