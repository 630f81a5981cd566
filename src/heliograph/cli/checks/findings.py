"""The types of checks and findings, and the printing of findings."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import click
import msgspec

from heliograph.runtime.resolver import NameServers
from heliograph.settings import Settings
from heliograph.storage.diagnostics import Examination

LOOKS = {"ok": "green", "warn": "yellow", "FAIL": "red"}

Level = Literal["ok", "warn", "FAIL"]
Command = Literal["doctor", "preflight"]


class Finding(msgspec.Struct, frozen=True):
    check: str
    level: Level
    message: str
    fix: str | None = None


ok, warn, fail = partial(Finding, "", "ok"), partial(Finding, "", "warn"), partial(Finding, "", "FAIL")


class Site(msgspec.Struct):
    """The installation under check, with results that earlier checks store for later checks."""

    settings: Settings
    resolver: NameServers
    probe: str = ""  # domain whose mail exchangers are contacted on `port`
    port: int = 25
    relays: Sequence[str] = ()
    seen: Examination | None = None  # None if the database cannot be read
    server: dict[str, Any] | None = None  # PostgreSQL's settings, as queried
    exchangers: Sequence[str] = ()  # MX hosts of `probe`
    source: str | None = None  # local IP address of outgoing mail connections
    addresses: Sequence[str] = ()  # IP addresses of our public host name


class SiteCheck(msgspec.Struct, frozen=True):
    name: str
    by: Command | Literal["both"]
    asks: str
    look: Callable[[Site], Iterable[Finding] | Coroutine[Any, Any, Iterable[Finding]]]
    fix: str | None = None  # default fix for findings without their own

    def findings(self, site: Site) -> Iterable[Finding]:
        found = self.look(site)
        for one in asyncio.run(found) if isinstance(found, Coroutine) else found:
            yield Finding(self.name, one.level, one.message, one.fix or (self.fix if one.level != "ok" else None))


def tell(context: click.Context, findings: Iterable[Finding], as_json: bool) -> None:
    """Print each finding as it arrives (or all as JSON); exit with code 1 if any has the level FAIL."""
    told = []
    for finding in findings:
        told.append(finding)
        if not as_json:
            level = click.style(finding.level.ljust(4), fg=LOOKS[finding.level])
            click.echo(f"{level}  {finding.check}: {finding.message}" + (f" → {finding.fix}" if finding.fix else ""))
    failed = any(finding.level == "FAIL" for finding in told)
    if as_json:
        click.echo(msgspec.json.encode({"ok": not failed, "findings": told}))
    context.exit(1 if failed else 0)
