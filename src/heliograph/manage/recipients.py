"""Recipients of a sandbox team; each recipient enters a confirmation code before being added."""

from heliograph.changes.fields import check_quota
from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.delivery.magic_recipients import is_magic
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.domain.setup.records import Recipient, Team
from heliograph.domain.setup.snapshot import Row, Setup, to_row
from heliograph.domain.setup.values import read_recipient
from heliograph.manage.teams import get_team
from heliograph.storage.store import Store

CODE_ATTEMPTS_MAX = 10  # maximum attempts to enter a confirmation code, per team in 15 minutes


def read_new_recipient(actor: Actor, team: Team, raw: str) -> str:
    """Return an address or phone number in normal form; raise InvalidRequest if the team may already send to it."""
    try:
        address: str = read_recipient(raw.strip())
    except ValueError:
        message = "Enter an email address, or a phone number such as +4915112345678."
        raise InvalidRequest(message, param="address") from None
    if address in team.recipients or is_magic(address):
        raise InvalidRequest(f"This team can already send to {address}.", param="address")
    check_quota(actor, "address", len(team.recipients), "recipients")
    return address


async def log_code_sent(store: Store, actor: Actor, team: str, address: str) -> None:
    """Write the audit entry of a sent confirmation code; the code itself is not stored."""
    await store.audit.add(actor.audit_entry(store.clock.now(), "recipient.ask", address, team=team))


async def add(store: Store, actor: Actor, team: str, address: str) -> None:
    """Add a recipient who entered the right confirmation code."""

    def make_rows(setup: Setup) -> list[Row]:
        existing = get_team(setup, team).recipients
        if address in existing:
            return []
        check_quota(actor, "address", len(existing), "recipients")
        return [to_row("recipient", f"{team}/{address}", Recipient(team=team, address=address), team)]

    await change_rows(store, actor, team, "recipient.add", address, make_rows)


async def remove(store: Store, actor: Actor, team: str, address: str) -> None:
    def make_rows(setup: Setup) -> list[Row]:
        if address not in get_team(setup, team).recipients:
            raise NotFound(f"The team has no recipient {address}.")
        return [to_row("recipient", f"{team}/{address}", None, team)]

    await change_rows(store, actor, team, "recipient.remove", address, make_rows)
