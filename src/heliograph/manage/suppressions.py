"""A team's suppression list, as changed by people and API keys; bounces and complaints arrive as reports."""

from heliograph.domain.audit.actor import Actor
from heliograph.domain.delivery.magic_recipients import is_magic_email
from heliograph.domain.mail.address import Address, parse_address
from heliograph.domain.mail.suppression_file import MAGIC_ADDRESS_ERROR, REASONS
from heliograph.domain.refusals import InvalidEmail, InvalidRequest, SuppressionNotFound
from heliograph.domain.setup.records import TeamRecord
from heliograph.domain.text import quoted
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from heliograph.storage.suppressions import NeverListed, Suppression


async def find(store: Store, team: TeamRecord, email: str) -> Suppression:
    suppression = await store.suppressions.get(team.ref, _read_address(email).normal)
    if suppression is None:
        raise _not_found(email)
    return suppression


async def list_page(store: Store, team: TeamRecord, after: str | None, limit: int) -> list[Suppression]:
    """Return the suppressions after an address, newest first; one more than `limit` if another page follows."""
    # An unencoded plus sign arrives as a space
    address = parse_address(after.replace(" ", "+")) if after is not None else None
    try:
        if after is not None and address is None:
            raise NeverListed
        return await store.suppressions.list_page(team.ref, address.normal if address else None, limit)
    except NeverListed:
        raise InvalidRequest(
            f"after is the email address that the page before ended with, not {quoted(after or '')}.",
            param="after",
        ) from None


async def add(store: Store, actor: Actor, team: TeamRecord, email: str, reason: str) -> bool:
    """Add an address to the suppression list; return False if it is already listed."""
    if reason not in REASONS:
        raise InvalidRequest(f"reason is one of {', '.join(REASONS)}.", param="reason")
    address = parse_address(email)
    if address is None:
        raise InvalidEmail(f"email {quoted(email)} is not a valid email address.", param="email")
    if is_magic_email(address.normal):
        raise InvalidRequest(f"email {quoted(email)} {MAGIC_ADDRESS_ERROR}. Suppress a real address.", param="email")
    new = NewSuppression(team.ref, address.normal, address.original, reason)
    entry = actor.audit_entry(store.clock.now(), "suppression.add", address.original, reason, team=team.id)
    return await store.suppressions.add(new, entry)


async def remove(store: Store, actor: Actor, team: TeamRecord, email: str) -> None:
    address = _read_address(email)
    entry = actor.audit_entry(store.clock.now(), "suppression.remove", address.original, team=team.id)
    if not await store.suppressions.remove(team.ref, address.normal, entry):
        raise _not_found(email)


def _read_address(email: str) -> Address:
    address = parse_address(email)
    if address is None:
        raise _not_found(email)
    return address


def _not_found(email: str) -> SuppressionNotFound:
    return SuppressionNotFound(
        f"{quoted(email)} is not on the suppression list. {SuppressionNotFound.fix}", param="email"
    )
