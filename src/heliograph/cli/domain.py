"""`heliograph domain`: manages sending domains and their DNS records."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import msgspec

from heliograph.app import make_domains
from heliograph.bootstrap import make_secrets
from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, TEAM_OPTION, read_setup, with_settings, with_store
from heliograph.cli.printing import print_list, print_result
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.domain_records import Record, Verdict
from heliograph.domain.setup.records import Domain
from heliograph.domain.setup.zone_file import platform_zone_file
from heliograph.manage.domains import DomainCheckResult, Domains
from heliograph.manage.teams import get_team
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.store import Store

T = TypeVar("T")

RESOLVER_OPTION = click.option("--resolver", metavar="HOST:PORT", help="Query only this DNS server.")


@click.group()
def domain() -> None:
    """Manage sending domains and check their DNS records."""


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("name")
@click.option("--team", required=True, help="The team that sends from the domain.")
@click.option("--brand", help="Display name of mail from the domain. Default: the team's name.")
@JSON_OPTION
def add(settings: Settings, name: str, team: str, brand: str | None, as_json: bool) -> None:
    """Add the domain NAME to a team and print the DNS records to set.

    \b
    heliograph domain add acme.test --team team_acme --brand Acme
    """

    async def add_domain(domains: Domains) -> list[Record]:
        created = await domains.add(COMMAND_LINE, team, name, brand or "")
        if brand:
            # `add` does not change the brand of a domain that exists already.
            await domains.set_brand(COMMAND_LINE, created, brand, by_operator=True)
        return await domains.required_records(created.id)

    print_records(_with_domains(settings, f"Adding {name}", add_domain), as_json)


@domain.command("list")
@with_settings(*STORE_FLAGS)
@TEAM_OPTION
@JSON_OPTION
def list_(settings: Settings, team: str | None, as_json: bool) -> None:
    """List the domains of all teams, or of one team.

    \b
    heliograph domain list --team team_acme
    """
    setup = read_setup(settings)
    teams = setup.teams.values() if team is None else [get_team(setup, team)]
    domains = [item for team_setup in teams for item in team_setup.domains.values()]
    fields = ("id", "team", "name", "brand", "verified", "approved")
    print_list(as_json, domains, _format_domain, fields=lambda item: {field: getattr(item, field) for field in fields})


def _format_domain(item: Domain) -> str:
    states = f"{'' if item.verified else 'not '}verified, {'' if item.approved else 'not '}approved"
    return f"{item.id}  {item.team}  {item.name}  {item.brand}  {states}"


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("name")
@click.argument("brand")
def brand(settings: Settings, name: str, brand: str) -> None:
    """Change the display name of mail from the domain NAME (name or id) to BRAND.

    \b
    heliograph domain brand acme.test "Acme Shop"
    """

    async def set_brand(domains: Domains) -> Domain:
        return await domains.set_brand(COMMAND_LINE, domains.get(name), brand, by_operator=True)

    changed = _with_domains(settings, f"Changing {name}", set_brand)
    click.echo(f"mail from {changed.name} is sent as {changed.brand}")


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("name")
def remove(settings: Settings, name: str) -> None:
    """Remove the domain NAME (name or id) and its DKIM keys. A domain that can send is not removed.

    \b
    heliograph domain remove acme.test
    """

    async def remove_domain(domains: Domains) -> Domain:
        item = domains.get(name)
        await domains.remove(COMMAND_LINE, item)
        return item

    removed = _with_domains(settings, f"Removing {name}", remove_domain)
    click.echo(f"{removed.name} of {removed.team} removed")


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("name")
@JSON_OPTION
def dns(settings: Settings, name: str, as_json: bool) -> None:
    """Print the DNS records to set for the domain NAME.

    \b
    heliograph domain dns acme.test
    heliograph domain dns acme.test --json
    """

    async def read_records(domains: Domains) -> tuple[list[Record], bool]:
        return await domains.required_records(name), domains.has_public_mail_host

    records, is_public = _with_domains(settings, f"Reading {name}", read_records)
    print_records(records, as_json)
    if not is_public:
        click.echo(
            "Bounces cannot reach this service: set mail_host or the public URL to a public host name.", err=True
        )


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@JSON_OPTION
def zone(settings: Settings, as_json: bool) -> None:
    """Print the DNS records that the operator publishes: DKIM keys in dkim_zone, and permission for DMARC reports.

    \b
    heliograph domain zone
    heliograph domain zone --json
    """

    async def read_zone(domains: Domains) -> list[Record]:
        return domains.zone()

    records = _with_domains(settings, "Reading the domains", read_zone)
    print_result(as_json, {"records": records}, platform_zone_file(records))


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("name")
@RESOLVER_OPTION
@JSON_OPTION
def check(settings: Settings, name: str, resolver: str | None, as_json: bool) -> None:
    """Check every DNS record of the domain NAME, and print how to fix problems.

    \b
    heliograph domain check acme.test
    """
    result = _with_domains(
        settings, f"Checking DNS of {name}", lambda domains: domains.check(COMMAND_LINE, name), resolver
    )
    lines = [
        f"{_check_mark(record, verdict)}  {record.type:3}  {record.name}  {verdict.fix}".rstrip()
        for record, verdict in result.records
    ]
    passes = "passes" if result.alignment.passes else "does not pass"
    lines.append(f"{name} is {'' if result.domain.verified else 'not '}verified; its mail {passes} DMARC alignment")
    print_result(as_json, check_json(result), "\n".join(lines))
    if not all(verdict.ok for record, verdict in result.records if record.is_required):
        raise SystemExit(1)


@domain.command()
@with_settings(*STORE_FLAGS, "public_url")
@click.argument("name")
@JSON_OPTION
def rotate(settings: Settings, name: str, as_json: bool) -> None:
    """Create new DKIM keys for the domain NAME and print their DNS records.

    The new keys are used once a check finds both records. You can delete the old records a week later.

    \b
    heliograph domain rotate acme.test
    """
    print_records(
        _with_domains(settings, f"Rotating {name}", lambda domains: domains.rotate(COMMAND_LINE, name)), as_json
    )


def _check_mark(record: Record, verdict: Verdict) -> str:
    if verdict.ok:
        return "ok  "
    return "FAIL" if record.is_required else "hint"


def check_json(result: DomainCheckResult) -> dict[str, object]:
    return {
        "domain": result.domain.name,
        "verified": result.domain.verified,
        "alignment": result.alignment,
        "records": [
            {**msgspec.to_builtins(record), **msgspec.to_builtins(verdict)} for record, verdict in result.records
        ],
    }


def print_records(records: list[Record], as_json: bool) -> None:
    """Print DNS records as text, or as JSON like the API (contract 14)."""
    lines = [f"{record.purpose:12}{record.type:5}{record.name}\n{'':17}{record.value}" for record in records]
    print_result(as_json, {"records": records}, "\n".join(lines))


def _with_domains(
    settings: Settings,
    progress_text: str,
    action: Callable[[Domains], Awaitable[T]],
    resolver: str | None = None,
) -> T:
    async def run_action(store: Store) -> T:
        return await action(
            make_domains(settings, make_secrets(settings, store), store, Clock(), _parse_address(resolver))
        )

    return with_store(settings, progress_text, run_action, checks_secret=True)


def _parse_address(resolver: str | None) -> tuple[str, int] | None:
    if resolver is None:
        return None
    host, _, port = resolver.rpartition(":")
    if not host or not port.isdigit():
        raise click.UsageError(f"--resolver {resolver!r}: expected host:port")
    return host.strip("[]"), int(port)
