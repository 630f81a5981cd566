"""Phone opt-outs of a team, as changed by people and API keys. Inbound SMS and WhatsApp texts change them too."""

from heliograph.domain.audit.actor import Actor
from heliograph.domain.phones.opt_out import PHONE_CHANNELS, PhoneChannel
from heliograph.domain.phones.phone import parse_phone
from heliograph.domain.refusals import InvalidPhone, InvalidRequest, OptOutNotFound
from heliograph.domain.setup.records import TeamRecord
from heliograph.domain.text import quoted
from heliograph.inbound.store.opt_outs import FIRST_PAGE, NeverOptedOut, OptOut
from heliograph.storage.store import Store


async def find(store: Store, team: TeamRecord, phone: str, channel: str | None) -> list[OptOut]:
    """Return a phone's opt-outs for one channel, or for all channels if None; raise OptOutNotFound if it has none."""
    channels = _read_channels(channel)
    opt_outs = [
        opt_out for opt_out in await store.opt_outs.find(team.ref, _read_phone(phone)) if opt_out.channel in channels
    ]
    if not opt_outs:
        raise _not_found(phone)
    return opt_outs


async def list_page(store: Store, team: TeamRecord, after: str | None, limit: int) -> list[OptOut]:
    """Return the opt-outs after an id, newest first; one more than `limit` if another page follows."""
    if after is None:
        return await store.opt_outs.list_page(team.ref, FIRST_PAGE, limit)
    channel, _, phone = after.rpartition(":")
    try:
        number = parse_phone("+" + phone.lstrip(" +"))  # an unencoded plus sign arrives as a space
        position = await store.opt_outs.find_cursor(team.ref, number, channel)
    except (NeverOptedOut, InvalidPhone):
        raise InvalidRequest(
            f"after is the id that the page before ended with, such as sms:+4915112345678, not {quoted(after)}.",
            param="after",
        ) from None
    return await store.opt_outs.list_page(team.ref, position, limit)


async def add(store: Store, actor: Actor, team: TeamRecord, phone: str, channel: str) -> bool:
    """Add an opt-out; return False if it already existed."""
    number, (phone_channel,) = parse_phone(phone, "phone"), _read_channels(channel)
    entry = actor.audit_entry(store.clock.now(), "opt_out.add", number, phone_channel, team=team.id)
    return await store.opt_outs.add(team.ref, number, phone_channel, entry)


async def remove(store: Store, actor: Actor, team: TeamRecord, phone: str, channel: str | None) -> None:
    number, channels = _read_phone(phone), _read_channels(channel)
    entry = actor.audit_entry(store.clock.now(), "opt_out.remove", number, ", ".join(channels), team=team.id)
    if not await store.opt_outs.remove(team.ref, number, channels, entry):
        raise _not_found(phone)


def _read_channels(raw: str | None) -> tuple[PhoneChannel, ...]:
    channels = tuple(channel for channel in PHONE_CHANNELS if raw in (None, channel))
    if raw is not None and not channels:
        raise InvalidRequest(f"channel is {' or '.join(PHONE_CHANNELS)}, not {quoted(raw)}.", param="channel")
    return channels


def _read_phone(phone: str) -> str:
    try:
        return parse_phone("+" + phone.lstrip(" +"))
    except InvalidPhone:
        raise _not_found(phone) from None


def _not_found(phone: str) -> OptOutNotFound:
    return OptOutNotFound(f"{quoted(phone)} has not opted out. {OptOutNotFound.fix}", param="phone")
