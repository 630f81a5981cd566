"""Unsubscribes of a team, as changed by people, API keys and the recipients themselves."""

from heliograph.domain.audit.actor import Actor
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.unsubscribe import CATEGORY, UnsubscribeLink, UnsubscribeReason, check_category
from heliograph.domain.refusals import InvalidEmail, InvalidRequest, UnsubscribeNotFound
from heliograph.domain.setup.records import TeamRecord
from heliograph.domain.text import quoted
from heliograph.storage.store import Store
from heliograph.storage.unsubscribes import FIRST_PAGE, NeverUnsubscribed, Unsubscribe


async def find(store: Store, team: TeamRecord, address: str, category: str | None) -> list[Unsubscribe]:
    """Return an address's unsubscribes from one category, or from all; raise UnsubscribeNotFound if it has none."""
    entries = [
        entry
        for entry in await store.unsubscribes.find(team.ref, _read_address(address))
        if category in (None, entry.category)
    ]
    if not entries:
        raise _not_found(address)
    return entries


async def list_page(store: Store, team: TeamRecord, after: str | None, limit: int) -> list[Unsubscribe]:
    """Return the unsubscribes after an id, newest first; one more than `limit` if another page follows."""
    if after is None:
        return await store.unsubscribes.list_page(team.ref, FIRST_PAGE, limit)
    category, _, text = after.partition(":")
    address = parse_address(text.replace(" ", "+"))  # an unencoded plus sign arrives as a space
    try:
        if address is None:
            raise NeverUnsubscribed
        cursor = await store.unsubscribes.find_cursor(team.ref, address.normal, category)
    except NeverUnsubscribed:
        raise InvalidRequest(
            f"after is the last id of the previous page, such as newsletter:ada@example.com, not {quoted(after)}.",
            param="after",
        ) from None
    return await store.unsubscribes.list_page(team.ref, cursor, limit)


async def add(store: Store, actor: Actor, team: TeamRecord, address: str, category: str) -> bool:
    """Unsubscribe an address from a category; return False if it was already unsubscribed."""
    parsed = parse_address(address)
    if parsed is None:
        raise InvalidEmail(f"{quoted(address)} is not an email address. {InvalidEmail.fix}", param="address")
    check_category(category, team.categories)
    entry = actor.audit_entry(store.clock.now(), "unsubscribe.add", parsed.normal, category, team=team.id)
    return await store.unsubscribes.add(team.ref, parsed.normal, category, "manual", entry)


async def remove(store: Store, actor: Actor, team: TeamRecord, address: str, category: str | None) -> None:
    """Resubscribe an address to one category, or to all if None; raise UnsubscribeNotFound if not unsubscribed."""
    normal = _read_address(address)
    if category is not None and not CATEGORY.fullmatch(category):
        raise _not_found(address)
    entry = actor.audit_entry(store.clock.now(), "unsubscribe.remove", normal, category or "", team=team.id)
    if not await store.unsubscribes.remove(team.ref, normal, category or "", entry):
        raise _not_found(address)


async def follow_link(store: Store, link: UnsubscribeLink) -> None:
    """Unsubscribe the recipient named in a signed unsubscribe link; using the link again changes nothing."""
    if team := store.setup.current.teams.get(link.team):
        await _unsubscribe(store, team.record.ref, link.address, link.category, "link")


async def unsubscribe_by_mail(store: Store, message_id: str) -> None:
    """Unsubscribe the recipient of a message, who wrote to the message's unsubscribe address."""
    if message := await store.unsubscribes.find_message(message_id):
        await _unsubscribe(store, message.team, message.address, message.category, "mail")


async def _unsubscribe(store: Store, team: int, address: str, category: str, reason: UnsubscribeReason) -> None:
    entries = await store.unsubscribes.find(team, address)
    if not any(entry.category == category for entry in entries):  # a repeated request writes nothing
        await store.unsubscribes.add(team, address, category, reason)


def _read_address(text: str) -> str:
    address = parse_address(text)
    if address is None:
        raise _not_found(text)
    return address.normal


def _not_found(address: str) -> UnsubscribeNotFound:
    return UnsubscribeNotFound(f"{quoted(address)} has not unsubscribed. {UnsubscribeNotFound.fix}", param="address")
