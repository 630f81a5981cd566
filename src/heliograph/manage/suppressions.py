"""A team's suppression list, changed by people and keys; bounces and complaints reach it as reports (spec 4.1.2)."""

from heliograph.rules.address import Address, parse_address
from heliograph.rules.audit import Actor
from heliograph.rules.refusals import InvalidEmail, InvalidRequest, SuppressionNotFound
from heliograph.rules.setup.records import TeamRecord
from heliograph.rules.suppression_file import REASONS
from heliograph.rules.text import quoted
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from heliograph.storage.suppressions import Suppression


async def find(store: Store, team: TeamRecord, email: str) -> Suppression:
    found = await store.suppressions.get(team.ref, _known(email).normal)
    if found is None:
        raise _not_found(email)
    return found


async def add(store: Store, actor: Actor, team: TeamRecord, email: str, reason: str) -> bool:
    """Whether it was not there before."""
    if reason not in REASONS:
        raise InvalidRequest(f"reason is one of {', '.join(REASONS)}.", param="reason")
    address = parse_address(email)
    if address is None:
        raise InvalidEmail(f"email {quoted(email)} is not a valid email address.", param="email")
    given = NewSuppression(team.ref, address.normal, address.given, reason)
    entry = actor.did(store.clock.now(), "suppression.add", address.given, reason, team=team.id)
    return await store.suppressions.add(given, entry)


async def remove(store: Store, actor: Actor, team: TeamRecord, email: str) -> None:
    address = _known(email)
    entry = actor.did(store.clock.now(), "suppression.remove", address.given, team=team.id)
    if not await store.suppressions.remove(team.ref, address.normal, entry):
        raise _not_found(email)


def _known(email: str) -> Address:
    address = parse_address(email)
    if address is None:
        raise _not_found(email)
    return address


def _not_found(email: str) -> SuppressionNotFound:
    return SuppressionNotFound(
        f"{quoted(email)} is not on the suppression list. {SuppressionNotFound.fix}", param="email"
    )
