"""Listing and changing records, shared by `heliograph template` and `heliograph layout`."""

from collections.abc import Awaitable, Callable, Iterable

import click
import msgspec

from heliograph.cli.options import read_setup, with_store
from heliograph.cli.printing import print_list
from heliograph.domain.setup.records import Layout, Team, Template
from heliograph.domain.setup.snapshot import Setup
from heliograph.settings import Settings
from heliograph.storage.store import Store

RecordsOfTeam = Callable[[Team], Iterable[Template | Layout]]


def print_records(
    settings: Settings,
    records_of: RecordsOfTeam,
    is_pending: Callable[[Setup, str], bool],
    *,
    team: str | None,
    as_json: bool,
) -> None:
    """Print the templates or layouts of all teams, or of `team`, marking those with a draft awaiting approval."""
    setup = read_setup(settings)
    rows = [
        (record, is_pending(setup, record.id))
        for team_setup in setup.teams.values()
        for record in records_of(team_setup)
    ]
    selected = [pair for pair in rows if team in (None, pair[0].team)]
    print_list(as_json, selected, _format_row, fields=lambda pair: msgspec.to_builtins(pair[0]) | {"pending": pair[1]})


def _format_row(pair: tuple[Template | Layout, bool]) -> str:
    record, is_pending = pair
    channel = f"{record.channel}  " if isinstance(record, Template) else ""
    line = f"{record.id}  {record.team}  {channel}{record.status}  version {record.version}  {record.name}"
    return f"{line}  (draft awaiting approval)" if is_pending else line


def change(settings: Settings, id_: str, state: str, action: Callable[[Store], Awaitable[bool]]) -> None:
    is_changed = with_store(settings, f"Changing {id_}", action)
    click.echo(f"{id_} is {state}" if is_changed else f"{id_} was {state} already")
