"""`heliograph cell`: adds, lists and moves cells, each an installation in a schema of PostgreSQL or Citus."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import click

from heliograph.bootstrap import sqlite_path
from heliograph.cli.options import (
    JSON_OPTION,
    parse_cell_name,
    progress,
    readable_errors,
    with_settings,
    without_password,
)
from heliograph.cli.printing import print_list, print_result
from heliograph.domain.setup.cells import basic_pattern
from heliograph.settings import Settings
from heliograph.storage.engine.cells import CellError, CellStatus, add_cell, find_cell, move_cell, read_cells
from heliograph.storage.engine.migrate import schema_files

T = TypeVar("T")


def _parse_node(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal()):
        raise click.BadParameter(f"{text!r} is not a worker such as 10.0.0.2:5432")
    return host, int(port)


NAME_ARGUMENT = click.argument("name", metavar="CELL", type=parse_cell_name)


@click.group()
def cell() -> None:
    """Add, list and move cells: each is an installation in a schema of the database."""


@cell.command()
@with_settings("database", several_cells=True)
@NAME_ARGUMENT
def add(settings: Settings, name: str) -> None:
    """Create the schema of a cell and migrate it. With Citus, its tables are on one worker.

    Example: heliograph cell add cell_01
    """
    _run(settings, f"Adding {name}", add_cell(settings.database, name))
    click.echo(f"{name} was added to {without_password(settings.database)}")
    click.echo(f"To serve it, add {name} to HELIOGRAPH_CELLS.")


@cell.command("list")
@with_settings("database", several_cells=True)
@JSON_OPTION
def list_(settings: Settings, as_json: bool) -> None:
    """List the cells of the database: where they are, their size, version and queue.

    Example: heliograph cell list
    """
    cells = _run(settings, "Reading", read_cells(settings.database))
    print_list(as_json, cells, _format_cell, empty_text="There is no cell. To add one: heliograph cell add cell_01")


@cell.command()
@with_settings("database", several_cells=True)
@NAME_ARGUMENT
@JSON_OPTION
def status(settings: Settings, name: str, as_json: bool) -> None:
    """Show where a cell is, its size, version and queue.

    Example: heliograph cell status cell_01
    """
    cell_status = _run(settings, "Reading", find_cell(settings.database, name))
    print_result(as_json, cell_status, _format_cell(cell_status))


@cell.command()
@NAME_ARGUMENT
def pattern(name: str) -> None:
    """Print the regular expression with which a proxy recognizes keys of a cell in Basic authentication.

    For proxies that cannot decode base64, such as Caddy. Example: heliograph cell pattern cell_01
    """
    click.echo(basic_pattern(name))


@cell.command()
@with_settings("database", several_cells=True)
@NAME_ARGUMENT
@click.option("--to", "node", metavar="HOST:PORT", type=_parse_node, required=True, help="Worker of Citus.")
def move(settings: Settings, name: str, node: tuple[str, int]) -> None:
    """Move a cell to another worker of Citus, while its processes run.

    Example: heliograph cell move cell_01 --to 10.0.0.2:5432
    """
    _run(settings, f"Moving {name}", move_cell(settings.database, name, *node, _show_progress))
    click.echo(f"{name} is on {node[0]}:{node[1]}")


def _run(settings: Settings, text: str, action: Coroutine[Any, Any, T]) -> T:
    if sqlite_path(settings) is not None:
        action.close()
        raise click.ClickException("cells need PostgreSQL: give its URL with --database or HELIOGRAPH_DATABASE")
    with progress(text), readable_errors(settings):
        try:
            return asyncio.run(action)
        except CellError as error:
            raise click.ClickException(str(error)) from error


def _show_progress(copied: int, size: int, step: str) -> None:
    if sys.stderr.isatty():
        text = f"{100 * copied // size} % of {_format_size(size)} copied: {step}"
        click.echo(f"\r\x1b[K{text} …", nl=False, err=True)


def _format_cell(cell: CellStatus) -> str:
    newest_version = schema_files()[-1][0]
    version = f"schema {cell.version}" + (
        f" (this Heliograph: {newest_version})" if cell.version != newest_version else ""
    )
    where = cell.node or "the server of the database URL"
    return f"{cell.name}  on {where}  {_format_size(cell.size)}  {version}  {cell.queued} queued"


def _format_size(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
