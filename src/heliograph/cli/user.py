"""`heliograph user`: people of the dashboard."""

import click
import msgspec

from heliograph.cli.options import STORE_FLAGS, with_settings, with_store
from heliograph.clock import Clock
from heliograph.datafolder import kept_address
from heliograph.rules.address import parse_address
from heliograph.rules.audit import COMMAND_LINE, AuditEntry
from heliograph.rules.ids import timestamp
from heliograph.rules.text import line
from heliograph.settings import Settings
from heliograph.storage.people import Link, People, Person
from heliograph.storage.store import Store


@click.group()
def user() -> None:
    """People of the dashboard: list them, add one, or make a link that lets one in."""


@user.command()
@with_settings(*STORE_FLAGS, "listen", "public_url")
@click.argument("email")
@click.option("--name", help="How the dashboard calls this person. Default: the address.")
@click.option("--operator", is_flag=True, help="Runs the instance: every team, carriers, approvals.")
@click.option("--team", help="A team to be a member of.")
@click.option("--role", type=click.Choice(["owner", "developer", "viewer"]), default="developer", show_default=True)
def add(settings: Settings, email: str, name: str | None, operator: bool, team: str | None, role: str) -> None:
    """Invite a person and print the link to accept by, good for 7 days.

    Nothing counts before it is accepted: somebody new chooses a password by the link, who has one signs in first.
    No mail is sent: hand the link to this person and to nobody else.

    \b
    heliograph user add ada@example.com --operator
    heliograph user add bob@example.com --team team_acme --role viewer
    """
    address, name = _address(email), _name(name or email)

    async def story(store: Store) -> str:
        if team is not None and team not in store.setup.current.teams:
            raise click.ClickException(f"there is no team {team}")
        people = People(store.database, Clock())
        person = await people.add(address, name)
        if operator and not person.operator:
            await people.set_operator(person.id, True, _entry("person.operator", address, "yes"))
        if team is not None:
            entry = _entry("member.invite", address, role, team)
            if not await people.set_role(person.id, team, role, entry):
                raise click.ClickException(f"{address} is the last owner of {team}: make somebody else one first")
        if person.password and not await people.invitations(person.id):
            return ""
        return await people.make_link(Link(person.id, "invite", proven=1), _entry("person.add", address))

    token = with_store(settings, f"Adding {address}", story)
    if token:
        _echo_link(settings, token)
    else:
        click.echo(f"{address} has accepted that before; for a new password: heliograph user link {address}")


@user.command()
@with_settings(*STORE_FLAGS, "listen", "public_url")
@click.argument("email")
@click.option("--without-code", is_flag=True, help="Also turn off the code at sign-in, for someone who lost the phone.")
def link(settings: Settings, email: str, without_code: bool) -> None:
    """Print a link by which a person chooses a new password, good for one hour.

    Whoever has the link has the account. No mail is sent: hand it to this person and to nobody else.

    \b
    heliograph user link ada@example.com
    heliograph user link ada@example.com --without-code
    """
    address = _address(email)

    async def story(store: Store) -> str:
        people = People(store.database, Clock())
        person = await _known(people, address)
        if without_code:
            await people.set_totp(person.id, None, [], _entry("person.totp", address, "off"))
        return await people.make_link(Link(person.id, "reset", proven=1), _entry("person.link", address))

    _echo_link(settings, with_store(settings, "Making a link", story))


class Line(msgspec.Struct, frozen=True, kw_only=True):
    email: str
    name: str
    operator: bool
    roles: dict[str, str]  # team → role
    invited: list[str]  # what is offered and not accepted yet, such as "operator" or "viewer of team_acme"
    password: bool
    code: bool  # at sign-in
    last_seen: str | None


@user.command("list")
@with_settings(*STORE_FLAGS)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(settings: Settings, as_json: bool) -> None:
    """Show everybody: what they may do, how they sign in, when they were last seen.

    Example: heliograph user list
    """

    async def story(store: Store) -> list[Line]:
        people, lines = People(store.database, Clock()), list[Line]()
        while found := await people.lines(after=lines[-1].email if lines else "", limit=500):
            for one in found:
                seen = timestamp(one.seen_at) if one.seen_at else None
                given = {"email": one.email, "name": one.name, "operator": bool(one.operator), "last_seen": seen}
                signs_in = {"password": bool(one.has_password), "code": bool(one.has_totp)}
                offered = await people.invitations(one.id)
                more = {
                    "roles": await people.roles(one.id),
                    "invited": [f"{role} of {team}" if team else role for team, role in offered.items()],
                }
                lines.append(msgspec.convert({**given, **signs_in, **more}, Line))
        return lines

    lines = with_store(settings, "Reading", story)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"people": lines}), indent=2).decode())
    elif not lines:
        click.echo("Nobody yet: heliograph serve prints a link for the first operator.")
    else:
        click.echo("\n".join(map(_shown, lines)))


def _shown(one: Line) -> str:
    roles = [*(["operator"] if one.operator else []), *(f"{role} of {team}" for team, role in one.roles.items())]
    roles += [f"invited: {role}" for role in one.invited]
    signs_in = "password and code" if one.code else "password" if one.password else "no password"
    return f"{one.email:<32} {signs_in:<18} {one.last_seen or 'never':<25} {', '.join(roles)}".rstrip()


def _echo_link(settings: Settings, token: str) -> None:
    told = settings.base_url != Settings().base_url
    click.echo(
        f"{settings.base_url if told else kept_address(settings.data) or settings.base_url}/dashboard/link/{token}"
    )


def _entry(action: str, subject: str, detail: str = "", team: str | None = None) -> AuditEntry:
    return COMMAND_LINE.did(at=Clock().now(), team=team, action=action, subject=subject, detail=detail)


async def _known(people: People, address: str) -> Person:
    person = await people.find(address)
    if person is None:
        raise click.ClickException(f"there is no person {address}: heliograph user add {address}")
    return person


def _address(email: str) -> str:
    address = parse_address(email)
    if address is None:
        raise click.ClickException(f"{email} is not an email address")
    return address.normal


def _name(name: str) -> str:
    try:
        return line(name)
    except ValueError as error:
        raise click.UsageError(f"--name: {error}.") from None
