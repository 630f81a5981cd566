"""Listing and changing records, shared by `heliograph template` and `heliograph layout`."""

from collections.abc import Awaitable, Callable, Iterable

import click
import msgspec

from heliograph.cli.options import read_setup, with_store
from heliograph.cli.printing import show
from heliograph.domain.setup.records import Layout, Team, Template
from heliograph.domain.setup.snapshot import Setup
from heliograph.settings import Settings
from heliograph.storage.store import Store

Own = Callable[[Team], Iterable[Template | Layout]]


def list_all(
    settings: Settings, own: Own, waits: Callable[[Setup, str], bool], *, team: str | None, as_json: bool
) -> None:
    """Print the templates or layouts of all teams, or of `team`, marking those with a draft awaiting approval."""
    setup = read_setup(settings)
    found = [(one, waits(setup, one.id)) for each in setup.teams.values() for one in own(each)]
    shown = [pair for pair in found if team in (None, pair[0].team)]
    show(as_json, shown, _line, fields=lambda pair: msgspec.to_builtins(pair[0]) | {"waits": pair[1]})


def _line(pair: tuple[Template | Layout, bool]) -> str:
    one, waits = pair
    channel = f"{one.channel}  " if isinstance(one, Template) else ""
    line = f"{one.id}  {one.team}  {channel}{one.status}  version {one.version}  {one.name}"
    return f"{line}  (a draft waits)" if waits else line


def change(settings: Settings, id_: str, told: str, story: Callable[[Store], Awaitable[bool]]) -> None:
    done = with_store(settings, f"Changing {id_}", story)
    click.echo(f"{id_} is {told}" if done else f"{id_} was {told} already")
