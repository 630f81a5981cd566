"""`heliograph key`: creates, lists, rotates and revokes API keys."""

from datetime import datetime
from typing import Any

import click
import msgspec

from heliograph.bootstrap import make_secrets
from heliograph.cli.options import AS_JSON, OF_TEAM, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import show, tell
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.mail.address import normal_domain
from heliograph.domain.setup.keys import public_id
from heliograph.domain.setup.records import Scope
from heliograph.domain.setup.snapshot import PLATFORM_TEAM
from heliograph.manage import keys
from heliograph.manage.keys import MadeKey, WantedKey, end_of, new_token, to_record
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.store import Store

ID = click.argument("key_or_id", metavar="TOKEN_OR_PUBLIC_ID")


@click.group()
def key() -> None:
    """Make, list, rotate and revoke API keys.

    Only a hash of a token is stored, and a hook's secret sealed: each is shown once, when it is made.
    """


@key.command()
@click.option("--hook", is_flag=True, help="Print a hook's secret, v1,whsec_….")
def mint(hook: bool) -> None:
    """Print a well-formed token without storing it.

    For a setup file (token = "hk_…") or a secret store. Example: heliograph key mint
    """
    click.echo(new_token(Clock().entropy, hook=hook))


@key.command()
@with_settings(*STORE_FLAGS)
@click.option("--team", metavar="TEAM", help="The team's id, team_….")
@click.option(
    "--platform", is_flag=True, help="A platform key: it belongs to no team, cannot send, and reads the audit log."
)
@click.option("--name", help="What the key is for. Default: a name is made.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["send", "manage"]),
    help="What it may do; can be given twice. Default: send.",
)
@click.option("--domain", help="Pin the key to one domain.")
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DAY",
    help="The last day, in UTC, on which it works, such as 2027-01-31. Default: until it is revoked.",
)
@click.option(
    "--from",
    "networks",
    multiple=True,
    metavar="NETWORK",
    help="An address or range, such as 192.0.2.0/24, that it may be used from; can be repeated. Default: any.",
)
@click.option(
    "--passthrough",
    default="",
    metavar="TPL",
    help="A template of one variable, whose value is the free text (Body) of programs written for Twilio.",
)
@click.option("--hook", is_flag=True, help="A key that signs hooks, such as Supabase's, and opens nothing else.")
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
    hook: bool,
    as_json: bool,
) -> None:
    """Make a key for a team, or a platform key, and print its token, shown only once.

    \b
    heliograph key create --team team_acme --name server --scope send --scope manage
    heliograph key create --platform --name siem
    """
    if platform == bool(team):
        raise click.UsageError("Give either --team TEAM or --platform.")
    if platform and (scopes or domain or passthrough or hook):
        raise click.UsageError("A platform key has no --scope, --domain, --passthrough or --hook.")
    if domain is not None and normal_domain(domain) is None:
        raise click.UsageError(f"--domain {domain!r} is not a domain such as acme.test.")
    wanted = WantedKey(
        team=team or PLATFORM_TEAM,
        name=name,
        scopes=("operate",) if platform else scopes or ("send",),
        domain=domain and normal_domain(domain),
        expires_at=end_of(f"{expires:%Y-%m-%d}") if expires else None,
        networks=networks,
        passthrough=passthrough,
        hook=hook,
    )

    async def story(store: Store) -> MadeKey:
        return await keys.create(store, COMMAND_LINE, wanted, make_secrets(settings, store).sealer.seal)

    made = with_store(settings, "Making the key", story, seals=True)
    _show(made, as_json)


@key.command("list")
@with_settings(*STORE_FLAGS)
@OF_TEAM
@AS_JSON
def list_(settings: Settings, team: str | None, as_json: bool) -> None:
    """List all keys, or those of one team: what each may do, whether it works, when it was last used.

    Platform keys are listed with those of all teams. Uses of the last minute may still be missing.

    \b
    heliograph key list --team team_acme
    """
    found = with_store(settings, "Reading", lambda store: keys.lines(store, team, {}))
    shown = [{"team": line.record.team or None, **msgspec.structs.asdict(to_record(line))} for line in found]
    show(as_json, shown, _text)


def _text(one: dict[str, Any]) -> str:
    name, scopes, domain = one["name"], ",".join(one["scopes"]), one["domain"] or "any domain"
    used = f"last used {one['last_used_at']}" if one["last_used_at"] else "never used"
    return f"{one['id']}  {one['team'] or 'platform'}  {name}  {scopes}  {domain}  {one['state']}  {used}"


@key.command()
@with_settings(*STORE_FLAGS)
@ID
@click.option("--json", "as_json", is_flag=True, help="Print team, name and token as JSON.")
def rotate(settings: Settings, key_or_id: str, as_json: bool) -> None:
    """Replace a key with an equivalent one, and print its token, shown only once. The old key works for 24 more hours.

    \b
    heliograph key rotate 4fTzQ8kW1b
    """
    public = public_id(key_or_id) or key_or_id

    async def story(store: Store) -> MadeKey:
        seal = make_secrets(settings, store).sealer.seal
        return await keys.rotate(store, COMMAND_LINE, public, seal=seal)

    _show(with_store(settings, "Rotating the key", story, seals=True), as_json)


@key.command()
@with_settings(*STORE_FLAGS)
@ID
def revoke(settings: Settings, key_or_id: str) -> None:
    """Revoke a key for good, by its token or by its public id (the 10 characters after hk_).

    Every process refuses it within 5 seconds.

    \b
    heliograph key revoke 4fTzQ8kW1b
    """
    public = public_id(key_or_id) or key_or_id
    found = with_store(settings, "Revoking the key", lambda store: keys.revoke(store, COMMAND_LINE, public))
    owner = found.team or "the platform"
    click.echo(f"key {found.name} of {owner} {'was revoked already' if found.revoked else 'is revoked'}")


def _show(made: MadeKey, as_json: bool) -> None:
    tell(as_json, {"team": made.key.team or None, "name": made.key.name, "token": made.token}, made.token)
