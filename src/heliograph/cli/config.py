"""`heliograph config`: prints the effective settings and the source of each."""

import click
import msgspec

from heliograph.cli.options import JSON_OPTION, SERVE_FLAGS, with_settings, without_password
from heliograph.cli.printing import print_list
from heliograph.settings import SECRET_NAMES, Settings, SettingSource, write_settings

HIDDEN = "********"
DEFAULT = SettingSource("default")


class SettingRow(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: SettingSource


@click.command()
@with_settings(*SERVE_FLAGS, several_cells=True)
@JSON_OPTION
def config(settings: Settings, as_json: bool) -> None:
    """Print every setting with its value and source; secrets are hidden.

    \b
    heliograph config
    heliograph config --config heliograph.toml --json
    """
    rows = [
        SettingRow(name, _display_value(name, value), settings.sources.get(name, DEFAULT))
        for name, value in write_settings(settings).items()
    ]
    print_list(as_json, rows, _format_row)


def _format_row(row: SettingRow) -> str:
    return f"{row.name:<22} {row.value or '–':<34} {row.source.kind} {row.source.name}".rstrip()


def _display_value(name: str, value: str) -> str | None:
    if name in SECRET_NAMES and value:
        return HIDDEN
    return without_password(value) if name in ("database", "database_read") else value or None
