"""`heliograph user`: manages dashboard users."""

import click
import msgspec

from heliograph.cli.options import AS_JSON, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import show
from heliograph.data_folder import kept_address
from heliograph.domain.accounts.idp_groups import ROLES
from heliograph.domain.accounts.people import Person
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.address import parse_address
from heliograph.domain.refusals import NotFound
from heliograph.manage import people
from heliograph.manage.people import PRINTED, NewPerson
from heliograph.manage.teams import find_team
from heliograph.settings import Settings
from heliograph.storage.people import Offered
from heliograph.storage.store import Store
from heliograph.texts.dashboard_links import of_link


@click.group()
def user() -> None:
    """People of the dashboard: list them, add one, change a role, make a link that lets one in, remove one."""


@user.command()
@with_settings(*STORE_FLAGS, "listen", "public_url")
@click.argument("email")
@click.option("--name", help="The name shown in the dashboard. Default: the address.")
@click.option("--operator", is_flag=True, help="Runs the instance: every team, carriers, approvals.")
@click.option("--read-only", is_flag=True, help="An operator who sees everything and changes nothing.")
@click.option("--team", help="A team to be a member of.")
@click.option("--role", type=click.Choice(["owner", "developer", "viewer"]), default="developer", show_default=True)
def add(
    settings: Settings, email: str, name: str | None, operator: bool, read_only: bool, team: str | None, role: str
) -> None:
    """Invite a person and print the link to accept with, valid for 7 days.

    Nothing counts until it is accepted: a new person chooses a password with the link, others sign in first.
    No mail is sent: hand the link to this person and to nobody else.

    \b
    heliograph user add ada@example.com --operator
    heliograph user add eve@example.com --operator --read-only
    heliograph user add bob@example.com --team team_acme --role viewer
    """
    wanted, instance = NewPerson(email=email, name=name or ""), people.instance_role(operator, read_only)

    async def story(store: Store) -> Offered:
        return await people.add_or_offer(store, COMMAND_LINE, wanted, instance_role=instance, team=team, role=role)

    made = with_store(settings, f"Adding {email}", story)
    if made.token:
        _echo_link(settings, made.token)
    else:
        address = made.person.email
        click.echo(f"{address} has accepted that before; for a new password: heliograph user link {address}")


@user.command()
@with_settings(*STORE_FLAGS, "listen", "public_url")
@click.argument("email")
@click.option("--without-code", is_flag=True, help="Also turn off the code at sign-in, for someone who lost the phone.")
def link(settings: Settings, email: str, without_code: bool) -> None:
    """Print a link with which a person chooses a new password, valid for one hour.

    Anyone with the link has the account. No mail is sent: hand it to this person and to nobody else.

    \b
    heliograph user link ada@example.com
    heliograph user link ada@example.com --without-code
    """

    async def story(store: Store) -> str:
        person = await _known(store, email)
        return await people.make_link(store, COMMAND_LINE, person, "reset", PRINTED, without_code=without_code)

    _echo_link(settings, with_store(settings, "Making a link", story))


@user.command()
@with_settings(*STORE_FLAGS)
@click.argument("email")
@click.argument("team")
@click.argument("role", type=click.Choice([*ROLES, "none"]))
def role(settings: Settings, email: str, team: str, role: str) -> None:
    """Give a member of TEAM another role, or none: then they are no longer in it. To add somebody: user add.

    \b
    heliograph user role bob@example.com team_acme developer
    heliograph user role bob@example.com team_acme none
    """

    async def story(store: Store) -> None:
        person = await _known(store, email)
        members = await store.people.members(find_team(store.setup.current, team).record.id)
        before = next((member.role for member in members if member.id == person.id), None)
        if before is None:
            raise NotFound(f"{person.email} is not in {team}: heliograph user add {person.email} --team {team}")
        given = (store, COMMAND_LINE, person.id, person.email, team, before)
        await (people.end_role(*given) if role == "none" else people.set_role(*given, role))

    with_store(settings, "Changing", story)
    click.echo(f"{email} is {'no longer' if role == 'none' else f'now {role}'} in {team}")


@user.command()
@with_settings(*STORE_FLAGS)
@click.argument("email")
def sign_out(settings: Settings, email: str) -> None:
    """End every session of a person.

    Example: heliograph user sign-out ada@example.com
    """

    async def story(store: Store) -> None:
        person = await _known(store, email)
        await people.end_sessions(store, COMMAND_LINE, person.id, person.email)

    with_store(settings, "Signing out", story)
    click.echo(f"{email} is signed out everywhere")


@user.command()
@with_settings(*STORE_FLAGS)
@click.argument("email")
def remove(settings: Settings, email: str) -> None:
    """Remove a person from every team and from the instance. The audit log keeps what they did.

    Example: heliograph user remove bob@example.com
    """

    async def story(store: Store) -> None:
        await people.remove(store, COMMAND_LINE, await _known(store, email))

    with_store(settings, "Removing", story)
    click.echo(f"{email} is removed")


class UserLine(msgspec.Struct, frozen=True, kw_only=True):
    email: str
    name: str
    operator: bool
    read_only: bool  # operator without write access
    roles: dict[str, str]  # team → role
    invited: list[str]  # pending invitations, such as "operator" or "viewer of team_acme"
    password: bool
    code: bool  # two-factor sign-in is enabled
    last_seen: str | None


@user.command("list")
@with_settings(*STORE_FLAGS)
@AS_JSON
def list_(settings: Settings, as_json: bool) -> None:
    """Show everybody: what they may do, how they sign in, when they were last seen.

    Example: heliograph user list
    """

    async def story(store: Store) -> list[UserLine]:
        lines = list[UserLine]()
        while found := await store.people.lines(after=lines[-1].email if lines else "", limit=500):
            for one in found:
                seen = timestamp(one.seen_at) if one.seen_at else None
                given = {"email": one.email, "name": one.name, "operator": bool(one.operator), "last_seen": seen}
                given["read_only"] = bool(one.observer)
                signs_in = {"password": bool(one.has_password), "code": bool(one.has_totp)}
                offered = await store.people.invitations(one.id)
                more = {
                    "roles": await store.people.roles(one.id),
                    "invited": [f"{role} of {team}" if team else role for team, role in offered.items()],
                }
                lines.append(msgspec.convert({**given, **signs_in, **more}, UserLine))
        return lines

    lines = with_store(settings, "Reading", story)
    none = "Nobody yet: heliograph serve prints a link for the first operator."
    show(as_json, lines, _shown, none=none, indented=True)


def _shown(one: UserLine) -> str:
    instance = people.instance_role(one.operator, one.read_only)
    roles = [*([instance] if instance else []), *(f"{role} of {team}" for team, role in one.roles.items())]
    roles += [f"invited: {role}" for role in one.invited]
    signs_in = "password and code" if one.code else "password" if one.password else "no password"
    return f"{one.email:<32} {signs_in:<18} {one.last_seen or 'never':<25} {', '.join(roles)}".rstrip()


def _echo_link(settings: Settings, token: str) -> None:
    told = settings.base_url != Settings().base_url
    click.echo(f"{settings.base_url if told else kept_address(settings.data) or settings.base_url}{of_link(token)}")


async def _known(store: Store, email: str) -> Person:
    address = parse_address(email)
    person = await store.people.find(address.normal) if address else None
    if person is None:
        raise NotFound(f"There is no person {email}: heliograph user add {email}")
    return person
