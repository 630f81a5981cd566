"""`heliograph user`: manages dashboard users."""

import click
import msgspec

from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import print_list
from heliograph.data_folder import read_address
from heliograph.domain.accounts.idp_groups import ROLES
from heliograph.domain.accounts.people import Person
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.address import parse_address
from heliograph.domain.refusals import NotFound
from heliograph.manage import people
from heliograph.manage.people import UNMAILED_BY_OPERATOR, NewPerson
from heliograph.manage.teams import get_team
from heliograph.settings import Settings
from heliograph.storage.people import Invitation
from heliograph.storage.store import Store
from heliograph.texts.dashboard_links import sign_in_link_page


@click.group()
def user() -> None:
    """List, invite and remove dashboard users, change roles, create sign-in links."""


@user.command()
@with_settings(*STORE_FLAGS, "listen", "public_url")
@click.argument("email")
@click.option("--name", help="Name shown in the dashboard. Default: the address.")
@click.option("--operator", is_flag=True, help="Make the user an operator: all teams, carriers, approvals.")
@click.option("--read-only", is_flag=True, help="With --operator: read-only access.")
@click.option("--team", help="Add the user to this team.")
@click.option("--role", type=click.Choice(["owner", "developer", "viewer"]), default="developer", show_default=True)
def add(
    settings: Settings, email: str, name: str | None, operator: bool, read_only: bool, team: str | None, role: str
) -> None:
    """Invite a user and print the invitation link, valid for 7 days.

    The invitation takes effect when it is accepted: a new user sets a password with the link, an existing user signs
    in first. No mail is sent: give the link to this person only.

    \b
    heliograph user add ada@example.com --operator
    heliograph user add eve@example.com --operator --read-only
    heliograph user add bob@example.com --team team_acme --role viewer
    """
    new_person = NewPerson(email=email, name=name or "")
    instance_role = people.choose_instance_role(operator, read_only)

    async def invite(store: Store) -> Invitation:
        return await people.add_or_invite(
            store, COMMAND_LINE, new_person, instance_role=instance_role, team=team, role=role
        )

    invitation = with_store(settings, f"Adding {email}", invite)
    if invitation.token:
        _echo_link(settings, invitation.token)
    else:
        address = invitation.person.email
        click.echo(f"{address} already accepted this invitation. To set a new password: heliograph user link {address}")


@user.command()
@with_settings(*STORE_FLAGS, "listen", "public_url")
@click.argument("email")
@click.option("--without-code", is_flag=True, help="Also turn off two-factor sign-in, for a user who lost the phone.")
def link(settings: Settings, email: str, without_code: bool) -> None:
    """Create a link to set a new password, valid for one hour.

    Anyone with the link can take over the account. No mail is sent: give the link to this person only.

    \b
    heliograph user link ada@example.com
    heliograph user link ada@example.com --without-code
    """

    async def make_link(store: Store) -> str:
        person = await _find_person(store, email)
        return await people.make_link(
            store, COMMAND_LINE, person, "reset", UNMAILED_BY_OPERATOR, without_code=without_code
        )

    _echo_link(settings, with_store(settings, "Creating a link", make_link))


@user.command()
@with_settings(*STORE_FLAGS)
@click.argument("email")
@click.argument("team")
@click.argument("role", type=click.Choice([*ROLES, "none"]))
def role(settings: Settings, email: str, team: str, role: str) -> None:
    """Change the role of a member of TEAM; the role none removes the member. To add one: user add.

    \b
    heliograph user role bob@example.com team_acme developer
    heliograph user role bob@example.com team_acme none
    """

    async def change_role(store: Store) -> None:
        person = await _find_person(store, email)
        members = await store.people.list_members(get_team(store.setup.current, team).record.id)
        current_role = next((member.role for member in members if member.id == person.id), None)
        if current_role is None:
            raise NotFound(
                f"{person.email} is not a member of {team}. "
                f"To add the user: heliograph user add {person.email} --team {team}"
            )
        arguments = (store, COMMAND_LINE, person.id, person.email, team, current_role)
        await (people.remove_role(*arguments) if role == "none" else people.set_role(*arguments, role))

    with_store(settings, "Changing", change_role)
    click.echo(f"{email} is {'no longer' if role == 'none' else f'now {role}'} in {team}")


@user.command()
@with_settings(*STORE_FLAGS)
@click.argument("email")
def sign_out(settings: Settings, email: str) -> None:
    """End all sessions of a user.

    Example: heliograph user sign-out ada@example.com
    """

    async def end_sessions(store: Store) -> None:
        person = await _find_person(store, email)
        await people.end_sessions(store, COMMAND_LINE, person.id, person.email)

    with_store(settings, "Signing out", end_sessions)
    click.echo(f"{email} is signed out everywhere")


@user.command()
@with_settings(*STORE_FLAGS)
@click.argument("email")
def remove(settings: Settings, email: str) -> None:
    """Remove a user from every team and from the instance. Their audit log entries are kept.

    Example: heliograph user remove bob@example.com
    """

    async def remove_person(store: Store) -> None:
        await people.remove(store, COMMAND_LINE, await _find_person(store, email))

    with_store(settings, "Removing", remove_person)
    click.echo(f"{email} removed")


class UserSummary(msgspec.Struct, frozen=True, kw_only=True):
    email: str
    name: str
    operator: bool
    read_only: bool  # operator without write access
    roles: dict[str, str]  # team → role
    invited: list[str]  # pending invitations, such as "operator" or "viewer of team_acme"
    password: bool
    code: bool  # whether sign-in has a second factor
    last_seen: str | None


@user.command("list")
@with_settings(*STORE_FLAGS)
@JSON_OPTION
def list_(settings: Settings, as_json: bool) -> None:
    """List users with roles, sign-in methods and last sign-in.

    Example: heliograph user list
    """

    async def read_summaries(store: Store) -> list[UserSummary]:
        summaries = list[UserSummary]()
        while rows := await store.people.list_rows(after=summaries[-1].email if summaries else "", limit=500):
            for row in rows:
                invitations = await store.people.list_invitations(row.id)
                summary = UserSummary(
                    email=row.email,
                    name=row.name,
                    operator=bool(row.operator),
                    read_only=bool(row.observer),
                    roles=await store.people.get_roles(row.id),
                    invited=[f"{role} of {team}" if team else role for team, role in invitations.items()],
                    password=bool(row.has_password),
                    code=bool(row.has_totp),
                    last_seen=timestamp(row.seen_at) if row.seen_at else None,
                )
                summaries.append(summary)
        return summaries

    summaries = with_store(settings, "Reading", read_summaries)
    empty_text = "There are no users yet: heliograph serve prints a link for the first operator."
    print_list(as_json, summaries, _format_user, empty_text=empty_text, indented=True)


def _format_user(summary: UserSummary) -> str:
    instance_role = people.choose_instance_role(summary.operator, summary.read_only)
    roles = [
        *([instance_role] if instance_role else []),
        *(f"{role} of {team}" for team, role in summary.roles.items()),
    ]
    roles += [f"invited: {role}" for role in summary.invited]
    sign_in_methods = "password and code" if summary.code else "password" if summary.password else "no password"
    return f"{summary.email:<32} {sign_in_methods:<18} {summary.last_seen or 'never':<25} {', '.join(roles)}".rstrip()


def _echo_link(settings: Settings, token: str) -> None:
    is_configured = settings.base_url != Settings().base_url
    base_url = settings.base_url if is_configured else read_address(settings.data) or settings.base_url
    click.echo(f"{base_url}{sign_in_link_page(token)}")


async def _find_person(store: Store, email: str) -> Person:
    address = parse_address(email)
    person = await store.people.find(address.normal) if address else None
    if person is None:
        raise NotFound(f"There is no user {email}. To invite the user: heliograph user add {email}")
    return person
