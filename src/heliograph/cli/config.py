"""`heliograph config`: prints the effective settings and the source of each."""

import click
import msgspec

from heliograph.cli.options import AS_JSON, SERVE_FLAGS, shown, with_settings
from heliograph.cli.printing import show
from heliograph.settings import SECRETS, Origin, Settings, write_settings

HIDDEN = "********"
DEFAULT = Origin("default")


class SettingLine(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: Origin


@click.command()
@with_settings(*SERVE_FLAGS)
@AS_JSON
def config(settings: Settings, as_json: bool) -> None:
    """Print every setting, its value, and where it came from; secrets are hidden.

    \b
    heliograph config
    heliograph config --config heliograph.toml --json
    """
    lines = [
        SettingLine(name, _shown(name, value), settings.sources.get(name, DEFAULT))
        for name, value in write_settings(settings).items()
    ]
    show(as_json, lines, _text)


def _text(line: SettingLine) -> str:
    return f"{line.name:<22} {line.value or '–':<34} {line.source.kind} {line.source.name}".rstrip()


def _shown(name: str, value: str) -> str | None:
    if name in SECRETS and value:
        return HIDDEN
    return shown(value) if name == "database" else value or None
