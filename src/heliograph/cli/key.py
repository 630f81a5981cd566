"""`heliograph key`: making, storing and revoking API keys."""

from typing import Any

import click
import msgspec

from heliograph.cli.apply import apply_setup, vault_of
from heliograph.cli.options import STORE_FLAGS, with_settings, with_store
from heliograph.clock import Clock
from heliograph.rules.address import normal_domain
from heliograph.rules.setup.file import SetupFile
from heliograph.rules.setup.keys import ENTROPY_BYTES, make_token, parse_token
from heliograph.rules.setup.plan import NewKey
from heliograph.rules.setup.reading import line
from heliograph.rules.setup.records import Key
from heliograph.rules.setup.secrets import Vault
from heliograph.rules.setup.snapshot import Setup, to_row
from heliograph.settings import Settings
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store


@click.group()
def key() -> None:
    """Make, store and revoke API keys.

    Only a hash of a key is stored: its token is shown once, when it is made.
    """


@key.command()
def mint() -> None:
    """Print a well-formed token without storing it.

    For a setup file (token = "hk_…") or a secret store. Example: heliograph key mint
    """
    click.echo(make_token(Clock().entropy(ENTROPY_BYTES)))


@key.command()
@with_settings(*STORE_FLAGS)
@click.option("--team", required=True, metavar="TEAM", help="The team's id, team_….")
@click.option("--name", help="What the key is for. Default: a name of its own.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["send", "manage"]),
    help="What it may do; can be given twice. Default: send.",
)
@click.option("--domain", help="Pin the key to one domain.")
@click.option("--json", "as_json", is_flag=True, help="Print team, name and token as JSON.")
def create(
    settings: Settings,
    team: str,
    name: str | None,
    scopes: tuple[str, ...],
    domain: str | None,
    as_json: bool,
) -> None:
    """Make a key for a team and print its token, this once.

    \b
    heliograph key create --team team_acme --name server --scope send --scope manage
    """
    token = make_token(Clock().entropy(ENTROPY_BYTES))
    try:
        wanted: dict[str, Any] = {"name": line(name or f"key {parse_token(token)}"), "token": token}
    except ValueError as error:
        raise click.UsageError(f"--name: {error}.") from None
    if scopes:
        wanted["scopes"] = list(scopes)
    if domain is not None:
        wanted["domain"] = normal_domain(domain)
        if wanted["domain"] is None:
            raise click.UsageError(f"--domain {domain!r} is not a domain such as acme.test.")
    made = with_store(
        settings, "Making the key", lambda store: _create(store, team, wanted, vault_of(settings)), seals=True
    )
    click.echo(msgspec.json.encode(made) if as_json else made.token)


async def _create(store: Store, team: str, wanted: dict[str, Any], vault: Vault) -> NewKey:
    if team not in store.setup.current.teams:
        known = ", ".join(store.setup.current.teams) or "none; make one with heliograph apply"
        raise click.ClickException(f"there is no team {team!r}. Known: {known}")
    if any(c.key.name == wanted["name"] for c in store.setup.current.callers.values() if c.team.record.id == team):
        raise click.ClickException(f"{team} has a key named {wanted['name']!r} already: choose another --name")
    done = await apply_setup(store, SetupFile(name="key", teams=[{"id": team, "keys": [wanted]}]), vault)
    return done.keys[0]


@key.command()
@with_settings(*STORE_FLAGS)
@click.argument("key_or_id", metavar="TOKEN_OR_PUBLIC_ID")
def revoke(settings: Settings, key_or_id: str) -> None:
    """Revoke a key for good, by its token or by its public id (the 10 characters after hk_).

    Every process refuses it within 5 seconds.

    \b
    heliograph key revoke 4fTzQ8kW1b
    """
    public = parse_token(key_or_id) or key_or_id
    found: list[Key] = []

    def decide(current: Setup, _: int) -> SetupChange:
        record = current.records.get(("key", public))
        if not isinstance(record, Key):
            raise click.ClickException("there is no such key. Give the whole token, or the 10 characters after hk_")
        found.append(record)
        if record.revoked:
            return SetupChange()
        return SetupChange(rows=[to_row("key", public, msgspec.structs.replace(record, revoked=True), record.team)])

    async def story(store: Store) -> None:
        await store.setup.change(decide)

    with_store(settings, "Revoking the key", story)
    was = "was revoked already" if found[-1].revoked else "is revoked"
    click.echo(f"key {found[-1].name} of {found[-1].team} {was}")
