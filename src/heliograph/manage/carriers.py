"""Carriers: switched on and off, put in order, and tried with a test message."""

import msgspec
from msgspec.structs import replace

from heliograph.channels.carrier import Parcel
from heliograph.handover import Handover, first_of
from heliograph.rules.address import parse_address
from heliograph.rules.audit import Actor
from heliograph.rules.content import EmailContent, SmsContent, WhatsappContent
from heliograph.rules.gsm import segment
from heliograph.rules.ids import PREFIXES
from heliograph.rules.outcome import Outcome
from heliograph.rules.phone import country_of, read_phone
from heliograph.rules.refusals import InvalidPhone, InvalidRequest, NotFound
from heliograph.rules.setup.records import PRIORITY_MAX, CarrierRecord, Platform
from heliograph.rules.setup.snapshot import Setup, to_row
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store

TEST_S = 20.0
TEXT = "This is a test of Heliograph."


class CarrierChange(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool | None = None  # None: as it is
    priority: int | None = None


async def change(store: Store, actor: Actor, id_: str, wanted: CarrierChange) -> CarrierRecord:
    if wanted.priority is not None and abs(wanted.priority) > PRIORITY_MAX:
        raise InvalidRequest("A whole number; the lowest is asked first.", param="priority")
    fields = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value is not None}

    def decide(current: Setup, _: int) -> SetupChange:
        before = find_carrier(current, id_)
        after = replace(before, **fields)
        if after == before:
            return SetupChange()
        detail = f"enabled={after.enabled}, priority={after.priority}"
        entry = actor.did(store.clock.now(), "carrier.change", id_, detail)
        return SetupChange(rows=[to_row("carrier", id_, after, None)], audit=entry)

    await store.setup.change(decide)
    return find_carrier(store.setup.current, id_)


async def test(store: Store, actor: Actor, handover: Handover, id_: str, address: str) -> Outcome:
    """One made-up message; nothing of it is kept but the entry."""
    carrier = find_carrier(store.setup.current, id_)
    try:
        message = store.clock.new_id(PREFIXES[carrier.channel])
        parcel = _parcel(carrier, address, store.setup.current.platform, message)
    except (ValueError, InvalidPhone):
        what = "an email address" if carrier.channel == "email" else "a phone number such as +447400123456"
        raise InvalidRequest(f"Type {what}.", param="address") from None
    await store.audit.add(actor.did(store.clock.now(), "carrier.test", id_, address))
    (asked,) = await handover.in_turn(first_of([carrier]), lambda _: parcel, within_s=TEST_S)
    return asked.outcome


def find_carrier(setup: Setup, id_: str) -> CarrierRecord:
    found = setup.records.get(("carrier", id_))
    if not isinstance(found, CarrierRecord):
        raise NotFound(f"There is no carrier {id_}.")
    return found


def _parcel(carrier: CarrierRecord, address: str, platform: Platform, id_: str) -> Parcel:
    """ValueError or InvalidPhone for an address that is none of the channel's."""
    if carrier.channel == "email":
        parsed = parse_address(address)
        if parsed is None:
            raise ValueError(address)
        mail = EmailContent(
            from_name=platform.brand, from_address=platform.sender, to=[parsed.given], subject=TEXT, text=TEXT
        )
        return Parcel(
            message_id=id_, address=parsed.normal, given=parsed.given, content=msgspec.json.encode(mail), attempt=0
        )
    phone, segments = read_phone(address), segment(TEXT)
    sms = SmsContent(
        body=TEXT,
        sender_id=platform.brand,
        platform_sender=True,
        encoding=segments.encoding,
        segments=segments.spec,
        parts=segments.udh,
    )
    # Every WhatsApp account has this template from the beginning.
    whatsapp = WhatsappContent(template="hello_world", language="en_US", body=TEXT)
    content = msgspec.json.encode(sms if carrier.channel == "sms" else whatsapp)
    return Parcel(message_id=id_, address=phone, content=content, attempt=0, country=country_of(phone))
