"""Types of checks and findings, and how findings are printed."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import click
import msgspec

from heliograph.runtime.resolver import Resolver
from heliograph.settings import Settings
from heliograph.storage.diagnostics import Diagnostics

COLOR_BY_LEVEL = {"ok": "green", "warn": "yellow", "FAIL": "red"}

Level = Literal["ok", "warn", "FAIL"]
Command = Literal["doctor", "preflight"]


class Finding(msgspec.Struct, frozen=True):
    check: str
    level: Level
    message: str
    fix: str | None = None


ok, warn, fail = partial(Finding, "", "ok"), partial(Finding, "", "warn"), partial(Finding, "", "FAIL")


class Site(msgspec.Struct):
    """The checked installation. Checks also store results here that later checks need."""

    settings: Settings
    resolver: Resolver
    probe: str = ""  # domain whose mail servers are contacted on `port`
    port: int = 25
    relays: Sequence[str] = ()
    diagnostics: Diagnostics | None = None  # None if the database cannot be read
    postgres: dict[str, Any] | None = None  # settings of PostgreSQL
    exchangers: Sequence[str] = ()  # MX hosts of `probe`
    source: str | None = None  # local IP address of outgoing mail connections
    addresses: Sequence[str] = ()  # IP addresses of our public host name


class SiteCheck(msgspec.Struct, frozen=True):
    name: str
    command: Command | Literal["both"]
    question: str
    run: Callable[[Site], Iterable[Finding] | Coroutine[Any, Any, Iterable[Finding]]]
    fix: str | None = None  # fix that is shown for findings without their own fix

    def findings(self, site: Site) -> Iterable[Finding]:
        results = self.run(site)
        for result in asyncio.run(results) if isinstance(results, Coroutine) else results:
            yield Finding(
                self.name, result.level, result.message, result.fix or (self.fix if result.level != "ok" else None)
            )


def print_findings(context: click.Context, findings: Iterable[Finding], as_json: bool) -> None:
    """Print each finding as it arrives (or all as JSON); exit with code 1 if any has the level FAIL."""
    printed = []
    for finding in findings:
        printed.append(finding)
        if not as_json:
            level = click.style(finding.level.ljust(4), fg=COLOR_BY_LEVEL[finding.level])
            click.echo(f"{level}  {finding.check}: {finding.message}" + (f" → {finding.fix}" if finding.fix else ""))
    has_failed = any(finding.level == "FAIL" for finding in printed)
    if as_json:
        click.echo(msgspec.json.encode({"ok": not has_failed, "findings": printed}))
    context.exit(1 if has_failed else 0)
