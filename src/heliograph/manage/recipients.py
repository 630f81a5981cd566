"""Recipients of a sandbox team: asked by a code whether they want its messages, added with it, removed."""

from heliograph.manage.teams import find_team
from heliograph.rules.audit import Actor, AuditEntry
from heliograph.rules.magic import is_magic
from heliograph.rules.refusals import InvalidRequest, NotFound
from heliograph.rules.setup.file import read_recipient
from heliograph.rules.setup.records import Recipient, Team
from heliograph.rules.setup.snapshot import Setup, to_row
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store

CODES_MAX = 10  # that a team may try in 15 minutes


def read_new(team: Team, given: str) -> str:
    """The address or number in its normal form, of somebody whom the team may not send to yet."""
    try:
        address: str = read_recipient(given.strip())
    except ValueError:
        why = "Write an email address, or a phone number such as +4915112345678."
        raise InvalidRequest(why, param="address") from None
    if address in team.recipients or is_magic(address):
        raise InvalidRequest(f"This team may send to {address} already.", param="address")
    return address


async def note_asked(store: Store, actor: Actor, team: str, address: str) -> None:
    """A code was sent: nothing else is kept of it."""
    await store.audit.add(_entry(store, actor, "ask", team, address))


async def add(store: Store, actor: Actor, team: str, address: str) -> None:
    """Who gave the right code."""

    def decide(setup: Setup, _: int) -> SetupChange:
        if address in find_team(setup, team).recipients:
            return SetupChange()
        row = to_row("recipient", f"{team}/{address}", Recipient(team=team, address=address), team)
        return SetupChange(rows=[row], audit=_entry(store, actor, "add", team, address))

    await store.setup.change(decide)


async def remove(store: Store, actor: Actor, team: str, address: str) -> None:
    def decide(setup: Setup, _: int) -> SetupChange:
        if address not in find_team(setup, team).recipients:
            raise NotFound(f"The team has no recipient {address}.")
        row = to_row("recipient", f"{team}/{address}", None, team)
        return SetupChange(rows=[row], audit=_entry(store, actor, "remove", team, address))

    await store.setup.change(decide)


def _entry(store: Store, actor: Actor, what: str, team: str, address: str) -> AuditEntry:
    return actor.did(store.clock.now(), f"recipient.{what}", address, team=team)
