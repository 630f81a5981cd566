"""`heliograph key`: creates, lists, rotates and revokes API keys."""

from datetime import datetime
from typing import Any, TextIO

import click
import msgspec

from heliograph.bootstrap import make_secrets
from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, TEAM_OPTION, parse_cell_name, with_settings, with_store
from heliograph.cli.printing import print_list, print_result
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.mail.address import normalize_domain
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.key_restrictions import parse_restrictions
from heliograph.domain.setup.keys import public_id
from heliograph.domain.setup.records import KeyRestrictions, Scope
from heliograph.domain.setup.snapshot import PLATFORM_TEAM
from heliograph.manage import keys
from heliograph.manage.keys import CreatedKey, KeySummary, NewKey, end_of_day, new_token, to_record
from heliograph.manage.teams import get_team
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.store import Store
from heliograph.web.bodies import parse_json

ID_ARGUMENT = click.argument("key_or_id", metavar="TOKEN_OR_PUBLIC_ID")


def _check_cell(_: click.Context, __: click.Parameter, text: str) -> str:
    return text and parse_cell_name(text)


@click.group()
def key() -> None:
    """Create, list, rotate and revoke API keys.

    A key's token is stored only as a hash. A key for signed hooks (--hook) has a secret, which is stored encrypted.
    Both are shown only once, at creation.
    """


@key.command()
@click.option("--hook", is_flag=True, help="Print a hook's secret, v1,whsec_….")
@click.option("--cell", metavar="CELL", default="", callback=_check_cell, help="Cell of the key. Default: none.")
def mint(hook: bool, cell: str) -> None:
    """Generate a token and print it without storing it.

    For a setup file (token = "hk_…") or a secret store. Example: heliograph key mint
    """
    click.echo(new_token(Clock().random_bytes, cell, hook=hook))


@key.command()
@with_settings(*STORE_FLAGS)
@click.option("--team", metavar="TEAM", help="The team's id, team_….")
@click.option(
    "--platform",
    is_flag=True,
    help="Create a platform key: it belongs to no team, cannot send, manages teams, and reads the audit log.",
)
@click.option("--name", help="What the key is for. Default: a generated name.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["send", "manage"]),
    help="What the key can do; can be repeated. Default: send.",
)
@click.option("--domain", help="Restrict the key to one domain.")
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DAY",
    help="Last day (UTC) on which the key works, such as 2027-01-31. Default: never expires.",
)
@click.option(
    "--from",
    "networks",
    multiple=True,
    metavar="NETWORK",
    help="IP address or range that can use the key, such as 192.0.2.0/24; can be repeated. Default: any.",
)
@click.option(
    "--passthrough",
    default="",
    metavar="TPL",
    help="Template with one variable, which receives the free text (Body) sent by Twilio clients.",
)
@click.option(
    "--restrictions",
    "restrictions_file",
    type=click.File(encoding="utf-8-sig"),
    metavar="FILE.json",
    help='What the key may send, as JSON such as {"recipients": ["*@example.com"], "per_day": 100}; - for stdin.',
)
@click.option("--hook", is_flag=True, help="Create a key that can only sign hooks, such as Supabase's.")
@click.option("--json", "as_json", is_flag=True, help="Print team, name and token as JSON.")
def create(
    settings: Settings,
    team: str | None,
    platform: bool,
    name: str | None,
    scopes: tuple[Scope, ...],
    domain: str | None,
    expires: datetime | None,
    networks: tuple[str, ...],
    passthrough: str,
    restrictions_file: TextIO | None,
    hook: bool,
    as_json: bool,
) -> None:
    """Create a key for a team, or a platform key, and print its token, which is shown only once.

    \b
    heliograph key create --team team_acme --name server --scope send --scope manage
    heliograph key create --team team_acme --name agent --restrictions agent.json
    heliograph key create --platform --name siem
    """
    if platform == bool(team):
        raise click.UsageError("Give either --team TEAM or --platform.")
    if platform and (scopes or domain or passthrough or hook or restrictions_file):
        raise click.UsageError(
            "--platform cannot be combined with --scope, --domain, --passthrough, --restrictions or --hook."
        )
    if domain is not None and normalize_domain(domain) is None:
        raise click.UsageError(f"--domain {domain!r} is not a domain such as acme.test.")
    new_key = NewKey(
        team=team or PLATFORM_TEAM,
        name=name,
        scopes=("operate",) if platform else scopes or ("send",),
        domain=domain and normalize_domain(domain),
        expires_at=end_of_day(f"{expires:%Y-%m-%d}") if expires else None,
        networks=networks,
        passthrough=passthrough,
        restrictions=None if restrictions_file is None else _read_restrictions(restrictions_file),
        hook=hook,
    )

    async def create_key(store: Store) -> CreatedKey:
        return await keys.create(store, COMMAND_LINE, new_key, make_secrets(settings, store).cipher.encrypt)

    created = with_store(settings, "Creating the key", create_key, checks_secret=True)
    _print_key(created, as_json)


def _read_restrictions(file: TextIO) -> KeyRestrictions | None:
    try:
        return parse_restrictions(parse_json(file.read().encode()))
    except Refusal as refusal:
        raise click.UsageError(f"--restrictions {file.name}: {refusal.message}") from None


@key.command("list")
@with_settings(*STORE_FLAGS)
@TEAM_OPTION
@JSON_OPTION
def list_(settings: Settings, team: str | None, as_json: bool) -> None:
    """List all keys, or those of one team, with scopes, whether they are restricted, state and last use.

    Without --team, platform keys are included. Uses within the last minute may be missing.

    \b
    heliograph key list --team team_acme
    """

    async def read_rows(store: Store) -> list[KeySummary]:
        if team is not None:
            get_team(store.setup.current, team)
        return await keys.list_keys(store, team, {})

    rows = with_store(settings, "Reading", read_rows)
    records = [{"team": row.record.team or None, **msgspec.structs.asdict(to_record(row))} for row in rows]
    print_list(as_json, records, _format_key)


def _format_key(record: dict[str, Any]) -> str:
    name, scopes, domain = record["name"], ",".join(record["scopes"]), record["domain"] or "any domain"
    last_use = f"last used {record['last_used_at']}" if record["last_used_at"] else "never used"
    scopes += " (restricted)" if record["restrictions"] else ""
    return f"{record['id']}  {record['team'] or 'platform'}  {name}  {scopes}  {domain}  {record['state']}  {last_use}"


@key.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
@click.option("--json", "as_json", is_flag=True, help="Print team, name and token as JSON.")
def rotate(settings: Settings, key_or_id: str, as_json: bool) -> None:
    """Replace a key with an equivalent one, and print its token, shown only once. The old key works for 24 more hours.

    \b
    heliograph key rotate 4fTzQ8kW1b
    """
    id_ = public_id(key_or_id) or key_or_id

    async def rotate_key(store: Store) -> CreatedKey:
        encrypt = make_secrets(settings, store).cipher.encrypt
        return await keys.rotate(store, COMMAND_LINE, id_, encrypt=encrypt)

    _print_key(with_store(settings, "Rotating the key", rotate_key, checks_secret=True), as_json)


@key.command()
@with_settings(*STORE_FLAGS)
@ID_ARGUMENT
def revoke(settings: Settings, key_or_id: str) -> None:
    """Revoke a key permanently, by its token or by its public id (the part between hk_ and the last _).

    Every process refuses it within 5 seconds.

    \b
    heliograph key revoke 4fTzQ8kW1b
    """
    id_ = public_id(key_or_id) or key_or_id
    revoked = with_store(settings, "Revoking the key", lambda store: keys.revoke(store, COMMAND_LINE, id_))
    owner = revoked.team or "the platform"
    click.echo(f"key {revoked.name} of {owner} {'was already revoked' if revoked.revoked else 'is revoked'}")


def _print_key(created: CreatedKey, as_json: bool) -> None:
    print_result(
        as_json, {"team": created.key.team or None, "name": created.key.name, "token": created.token}, created.token
    )
