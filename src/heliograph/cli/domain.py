"""`heliograph domain`: manages sending domains and their DNS records."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import msgspec

from heliograph.app import make_domains
from heliograph.bootstrap import make_secrets
from heliograph.cli.options import AS_JSON, OF_TEAM, STORE_FLAGS, read_setup, with_settings, with_store
from heliograph.cli.printing import show, tell
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.domain_records import Record
from heliograph.domain.setup.records import Domain
from heliograph.manage.domains import Checked, Domains
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.store import Store

T = TypeVar("T")

RESOLVER = click.option("--resolver", metavar="HOST:PORT", help="Ask this DNS server alone.")


@click.group()
def domain() -> None:
    """Sending domains: what to set in DNS, and whether it is there."""


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("name")
@click.option("--team", required=True, help="The team that sends from it.")
@click.option("--brand", help="The display name of its mail. Default: the team's name.")
@AS_JSON
def add(settings: Settings, name: str, team: str, brand: str | None, as_json: bool) -> None:
    """Give a team the domain NAME and print the records to set.

    \b
    heliograph domain add acme.test --team team_acme --brand Acme
    """

    async def story(domains: Domains) -> list[Record]:
        made = await domains.add(COMMAND_LINE, team, name, brand or "")
        if brand:
            await domains.set_brand(COMMAND_LINE, made, brand, by_operator=True)  # also if the domain existed
        return await domains.records(made.id)

    show_records(_with_domains(settings, f"Adding {name}", story), as_json)


@domain.command("list")
@with_settings(*STORE_FLAGS)
@OF_TEAM
@AS_JSON
def list_(settings: Settings, team: str | None, as_json: bool) -> None:
    """List the domains of all teams, or of one.

    \b
    heliograph domain list --team team_acme
    """
    teams = read_setup(settings).teams.values()
    found = [one for own in teams for one in own.domains.values() if team in (None, one.team)]
    fields = ("id", "team", "name", "brand", "verified", "approved")
    show(as_json, found, _text, fields=lambda one: {field: getattr(one, field) for field in fields})


def _text(one: Domain) -> str:
    states = f"{'' if one.verified else 'not '}verified, {'' if one.approved else 'not '}approved"
    return f"{one.id}  {one.team}  {one.name}  {one.brand}  {states}"


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("name")
@click.argument("brand")
def brand(settings: Settings, name: str, brand: str) -> None:
    """Send mail from the domain NAME (or of this id) as BRAND, at once.

    \b
    heliograph domain brand acme.test "Acme Shop"
    """

    async def story(domains: Domains) -> Domain:
        return await domains.set_brand(COMMAND_LINE, domains.find(name), brand, by_operator=True)

    done = _with_domains(settings, f"Changing {name}", story)
    click.echo(f"mail from {done.name} is sent as {done.brand}")


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("name")
def remove(settings: Settings, name: str) -> None:
    """Remove the domain NAME (or of this id) and its keys. One that may send is kept.

    \b
    heliograph domain remove acme.test
    """

    async def story(domains: Domains) -> Domain:
        found = domains.find(name)
        await domains.remove(COMMAND_LINE, found)
        return found

    gone = _with_domains(settings, f"Removing {name}", story)
    click.echo(f"{gone.name} of {gone.team} is removed")


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("name")
@AS_JSON
def dns(settings: Settings, name: str, as_json: bool) -> None:
    """Print the DNS records to set for the domain NAME.

    \b
    heliograph domain dns acme.test
    heliograph domain dns acme.test --json
    """

    async def story(domains: Domains) -> tuple[list[Record], bool]:
        return await domains.records(name), domains.is_public

    records, is_public = _with_domains(settings, f"Reading {name}", story)
    show_records(records, as_json)
    if not is_public:
        click.echo("Bounces cannot reach this service: set mail_host or the public URL to a public name.", err=True)


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("name")
@RESOLVER
@AS_JSON
def check(settings: Settings, name: str, resolver: str | None, as_json: bool) -> None:
    """Ask DNS for every record of the domain NAME, and say how to fix what is wrong.

    \b
    heliograph domain check acme.test
    """
    done = _with_domains(
        settings, f"Asking DNS about {name}", lambda domains: domains.check(COMMAND_LINE, name), resolver
    )
    lines = [
        f"{'ok  ' if verdict.ok else 'FAIL'}  {record.type:3}  {record.name}  {verdict.fix}".rstrip()
        for record, verdict in done.records
    ]
    passes = "passes" if done.alignment.passes else "does not pass"
    lines.append(f"{name} is {'' if done.domain.verified else 'not '}verified; its mail {passes} DMARC alignment")
    tell(as_json, view(done), "\n".join(lines))
    if not all(verdict.ok for _, verdict in done.records):
        raise SystemExit(1)


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("name")
@AS_JSON
def rotate(settings: Settings, name: str, as_json: bool) -> None:
    """Make a second pair of DKIM keys for the domain NAME and print its records.

    The new keys sign once a check finds both records; the old records may go a week later.

    \b
    heliograph domain rotate acme.test
    """
    show_records(
        _with_domains(settings, f"Rotating {name}", lambda domains: domains.rotate(COMMAND_LINE, name)), as_json
    )


def view(done: Checked) -> dict[str, object]:
    return {
        "domain": done.domain.name,
        "verified": done.domain.verified,
        "alignment": done.alignment,
        "records": [
            {**msgspec.to_builtins(record), **msgspec.to_builtins(verdict)} for record, verdict in done.records
        ],
    }


def show_records(records: list[Record], as_json: bool) -> None:
    """Print DNS records as text, or as JSON in the format of contract 14."""
    lines = [f"{record.purpose:12}{record.type:5}{record.name}\n{'':17}{record.value}" for record in records]
    tell(as_json, {"records": records}, "\n".join(lines))


def _with_domains(
    settings: Settings,
    doing: str,
    story: Callable[[Domains], Awaitable[T]],
    resolver: str | None = None,
) -> T:
    async def run(store: Store) -> T:
        return await story(make_domains(settings, make_secrets(settings, store), store, Clock(), _address(resolver)))

    return with_store(settings, doing, run, seals=True)


def _address(resolver: str | None) -> tuple[str, int] | None:
    if resolver is None:
        return None
    host, _, port = resolver.rpartition(":")
    if not host or not port.isdigit():
        raise click.UsageError(f"--resolver {resolver!r}: expected host:port")
    return host.strip("[]"), int(port)
