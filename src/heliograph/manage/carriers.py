"""Use cases for carriers: create, edit, enable, disable, reorder, remove, and send a test message."""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from heliograph.carrier_failover import Handover, first_of
from heliograph.carriers.contract import Carriers, Parcel
from heliograph.changes.fields import check_fields
from heliograph.domain.audit.actor import Actor
from heliograph.domain.delivery.content import EmailContent, SmsContent, WhatsappContent
from heliograph.domain.delivery.outcome import Accepted, Outcome
from heliograph.domain.ids import PREFIXES
from heliograph.domain.mail.address import parse_address
from heliograph.domain.phones.gsm import segment
from heliograph.domain.phones.phone import country_of, read_phone
from heliograph.domain.refusals import InvalidPhone, InvalidRequest, NotFound
from heliograph.domain.setup.carrier_form import Filled, read_form
from heliograph.domain.setup.carrier_kinds import SECRETS, CarrierKind, sealed
from heliograph.domain.setup.records import PRIORITY_MAX, CarrierRecord, Channel, Platform
from heliograph.domain.setup.secrets import Seal
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store

TEST_S = 20.0
TEXT = "This is a test of Heliograph."
STEP = 10  # difference between neighbouring priorities
ID = re.compile("[a-z0-9-]{1,64}")
WRONG_ID = "A name of a-z, 0-9 and -, other than new."


class CarrierChange(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool | None = None  # None to keep the current value
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


def draft(
    setup: Setup, seal: Seal, carriers: Carriers, kind: CarrierKind, id_: str, form: Mapping[str, str]
) -> CarrierRecord:
    """Return a carrier record from a form, to be tested before it is saved.

    `seal`: encrypts (plaintext, context).
    """
    filled = read_form(kind, form)
    errors = filled.errors if ID.fullmatch(id_) and id_ != "new" else {"id": WRONG_ID} | filled.errors
    check_fields(errors)
    channel: Any = kind[0]
    made = _filled(CarrierRecord(id=id_, channel=channel, kind=kind[1], by_hand=True), filled, seal)
    _check_usable(carriers, made)
    _check_free(setup, id_)
    return made


async def create(store: Store, actor: Actor, made: CarrierRecord) -> CarrierRecord:
    """Save a new carrier with the lowest precedence of its channel."""

    def decide(current: Setup, _: int) -> SetupChange:
        _check_free(current, made.id)
        last = max((one.priority for one in of_channel(current, made.channel)), default=0)
        record = replace(made, priority=min(last + STEP, PRIORITY_MAX))
        entry = actor.did(store.clock.now(), "carrier.create", made.id, f"{made.channel} {made.kind}")
        return SetupChange(rows=[to_row("carrier", made.id, record, None)], audit=entry)

    await store.setup.change(decide)
    return find_carrier(store.setup.current, made.id)


def _check_free(setup: Setup, id_: str) -> None:
    if ("carrier", id_) in setup.records:
        raise InvalidRequest(f"There is a carrier {id_} already.", param="id")


async def edit(
    store: Store, actor: Actor, seal: Seal, carriers: Carriers, id_: str, form: Mapping[str, str]
) -> CarrierRecord:
    """Replace all options of a carrier.

    An empty secret keeps its value; if the carrier's address changes, the secret must be entered again.
    """
    before = find_carrier(store.setup.current, id_)
    filled = read_form((before.channel, before.kind), form, before.options)
    check_fields(filled.errors)
    _check_usable(carriers, _filled(before, filled, seal))

    def decide(current: Setup, _: int) -> SetupChange:
        old = find_carrier(current, id_)
        if (old.channel, old.kind) != (before.channel, before.kind):
            raise InvalidRequest(f"{id_} became another kind of carrier meanwhile. Look at it again.")
        new = _filled(old, filled, seal)
        if new == old:
            return SetupChange()
        names = [
            name for name in old.options.keys() | new.options.keys() if old.options.get(name) != new.options.get(name)
        ]
        names += ["countries"] if old.countries != new.countries else []
        entry = actor.did(store.clock.now(), "carrier.edit", id_, ", ".join(sorted(names)))
        return SetupChange(rows=[to_row("carrier", id_, new, None)], audit=entry)

    await store.setup.change(decide)
    return find_carrier(store.setup.current, id_)


async def move(store: Store, actor: Actor, id_: str, by: Literal[-1, 1]) -> CarrierRecord:
    """Move a carrier up or down by one; all carriers of the channel get new priorities in steps of STEP."""

    def decide(current: Setup, _: int) -> SetupChange:
        moved = find_carrier(current, id_)
        order = of_channel(current, moved.channel)
        at = order.index(moved)
        to = min(max(at + by, 0), len(order) - 1)
        order.insert(to, order.pop(at))
        if at == to:
            return SetupChange()
        new = [replace(one, priority=STEP * place) for place, one in enumerate(order, start=1)]
        rows = [to_row("carrier", one.id, one, None) for one in new if one != current.records["carrier", one.id]]
        entry = actor.did(store.clock.now(), "carrier.order", id_, ", ".join(one.id for one in new))
        return SetupChange(rows=rows, audit=entry)

    await store.setup.change(decide)
    return find_carrier(store.setup.current, id_)


async def remove(store: Store, actor: Actor, id_: str) -> None:
    """Remove a carrier. Waiting messages use the next carrier; without any, the channel is simulated."""

    def decide(current: Setup, _: int) -> SetupChange:
        gone = find_carrier(current, id_)
        entry = actor.did(store.clock.now(), "carrier.remove", id_, f"{gone.channel} {gone.kind}")
        return SetupChange(rows=[to_row("carrier", id_, None, None)], audit=entry)

    await store.setup.change(decide)


async def test(store: Store, actor: Actor, handover: Handover, carrier: CarrierRecord, address: str) -> Outcome:
    """Send a test message and return its outcome; only the audit entry and the time of a success are stored."""
    check_address(carrier.channel, address)
    message = store.clock.new_id(PREFIXES[carrier.channel])
    parcel = _parcel(carrier, address, store.setup.current.platform, message)
    await store.audit.add(actor.did(store.clock.now(), "carrier.test", carrier.id, address))
    (asked,) = await handover.in_turn(first_of([carrier]), lambda _: parcel, within_s=TEST_S)
    if ("carrier", carrier.id) not in store.setup.current.records:
        handover.forget(carrier.id)
    if isinstance(asked.outcome, Accepted):
        await store.carrier_use.tested(carrier.id, store.clock.now())
    return asked.outcome


def check_address(channel: str, address: str) -> None:
    """Raise InvalidRequest if the address does not fit the channel."""
    if channel == "email":
        if parse_address(address) is None:
            raise InvalidRequest("Type an email address.", param="address")
        return
    try:
        read_phone(address)
    except InvalidPhone:
        raise InvalidRequest("Type a phone number such as +447400123456.", param="address") from None


def find_carrier(setup: Setup, id_: str) -> CarrierRecord:
    found = setup.records.get(("carrier", id_))
    if not isinstance(found, CarrierRecord):
        raise NotFound(f"There is no carrier {id_}.")
    return found


def of_channel(setup: Setup, channel: Channel) -> list[CarrierRecord]:
    """Return the carriers of a channel in the order in which they are tried."""
    found = [carrier for carrier in setup.carriers if carrier.channel == channel]
    return sorted(found, key=lambda carrier: (carrier.priority, carrier.id))


def _filled(record: CarrierRecord, filled: Filled, seal: Seal) -> CarrierRecord:
    fields = dict(filled.fields)
    countries = tuple(fields.pop("countries", ("*",)))
    kept = {name: value for name, value in record.options.items() if name in SECRETS and name not in filled.forget}
    options = kept | sealed(fields, lambda plain, field: seal(plain, f"carrier/{record.id}/{field}"))
    return replace(record, countries=countries, options=options)


def _check_usable(carriers: Carriers, record: CarrierRecord) -> None:
    if wrong := carriers.wrong_with(record):
        raise InvalidRequest(wrong)


def _parcel(carrier: CarrierRecord, address: str, platform: Platform, id_: str) -> Parcel:
    if carrier.channel == "email":
        parsed = parse_address(address)
        assert parsed
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
    # Every WhatsApp account has this template by default.
    whatsapp = WhatsappContent(template="hello_world", language="en_US", body=TEXT)
    content = msgspec.json.encode(sms if carrier.channel == "sms" else whatsapp)
    return Parcel(message_id=id_, address=phone, content=content, attempt=0, country=country_of(phone))
