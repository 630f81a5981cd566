"""Use cases for carriers: create, edit, enable, disable, reorder, remove, and send a test message."""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from heliograph.carrier_failover import CarrierFailover, choose_in_order
from heliograph.carriers.contract import Carriers, OutboundMessage
from heliograph.changes.fields import check_fields
from heliograph.domain.audit.actor import Actor
from heliograph.domain.delivery.content import EmailContent, SmsContent, WhatsappContent
from heliograph.domain.delivery.outcome import Accepted, Outcome
from heliograph.domain.ids import PREFIXES
from heliograph.domain.mail.address import parse_address
from heliograph.domain.phones.gsm import count_segments
from heliograph.domain.phones.phone import country_of, parse_phone
from heliograph.domain.refusals import InvalidPhone, InvalidRequest, NotFound
from heliograph.domain.setup.carrier_form import ParsedForm, parse_form
from heliograph.domain.setup.carrier_kinds import SECRET_OPTIONS, CarrierKind, encrypt_secrets
from heliograph.domain.setup.records import PRIORITY_MAX, CarrierRecord, Channel, Platform
from heliograph.domain.setup.secrets import Encrypt
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.domain.setup.source_options import carriers_overflowing_to, check_pools
from heliograph.domain.validation import InvalidValue
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store

TEST_TIMEOUT_S = 20.0
TEST_TEXT = "This is a test message from Heliograph."
PRIORITY_STEP = 10  # difference between neighbouring priorities
CARRIER_ID = re.compile("[a-z0-9-]{1,64}")
INVALID_ID = "Use lowercase letters, digits and hyphens. The name can't be “new”."


class CarrierChange(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool | None = None  # None to keep the current value
    priority: int | None = None


async def change(store: Store, actor: Actor, id_: str, changes: CarrierChange) -> CarrierRecord:
    if changes.priority is not None and abs(changes.priority) > PRIORITY_MAX:
        raise InvalidRequest("A whole number; the lowest is asked first.", param="priority")
    fields = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not None}

    def build_change(current: Setup, _: int) -> SetupChange:
        before = get_carrier(current, id_)
        after = replace(before, **fields)
        if after == before:
            return SetupChange()
        detail = f"enabled={after.enabled}, priority={after.priority}"
        entry = actor.audit_entry(store.clock.now(), "carrier.change", id_, detail)
        return SetupChange(rows=[to_row("carrier", id_, after, None)], audit=entry)

    await store.setup.change(build_change)
    return get_carrier(store.setup.current, id_)


def draft_carrier(
    setup: Setup, encrypt: Encrypt, carriers: Carriers, kind: CarrierKind, id_: str, raw_form: Mapping[str, str]
) -> CarrierRecord:
    """Return a carrier record from a form, to be tested before it is saved.

    `encrypt` takes a plaintext and its encryption context and returns the ciphertext.
    """
    form_values = parse_form(kind, raw_form)
    errors = (
        form_values.errors if CARRIER_ID.fullmatch(id_) and id_ != "new" else {"id": INVALID_ID} | form_values.errors
    )
    check_fields(errors)
    channel: Any = kind[0]
    record = _with_form_values(CarrierRecord(id=id_, channel=channel, kind=kind[1], by_hand=True), form_values, encrypt)
    _check_usable(carriers, record)
    _check_id_free(setup, id_)
    _check_pools(setup, record)
    return record


async def create(store: Store, actor: Actor, draft: CarrierRecord) -> CarrierRecord:
    """Save a new carrier, which is tried after all other carriers of its channel."""

    def build_change(current: Setup, _: int) -> SetupChange:
        _check_id_free(current, draft.id)
        _check_pools(current, draft)
        last_priority = max((carrier.priority for carrier in carriers_of_channel(current, draft.channel)), default=0)
        record = replace(draft, priority=min(last_priority + PRIORITY_STEP, PRIORITY_MAX))
        entry = actor.audit_entry(store.clock.now(), "carrier.create", draft.id, f"{draft.channel} {draft.kind}")
        return SetupChange(rows=[to_row("carrier", draft.id, record, None)], audit=entry)

    await store.setup.change(build_change)
    return get_carrier(store.setup.current, draft.id)


def _check_id_free(setup: Setup, id_: str) -> None:
    if ("carrier", id_) in setup.records:
        raise InvalidRequest(f"The carrier {id_} already exists.", param="id")


async def edit(
    store: Store, actor: Actor, encrypt: Encrypt, carriers: Carriers, id_: str, form: Mapping[str, str]
) -> CarrierRecord:
    """Replace all options of a carrier with those of the form.

    A secret that is left empty keeps its value; if the carrier's address changes, the secret must be entered again.
    """
    before = get_carrier(store.setup.current, id_)
    form_values = parse_form((before.channel, before.kind), form, before.options)
    check_fields(form_values.errors)
    _check_usable(carriers, _with_form_values(before, form_values, encrypt))

    def build_change(current: Setup, _: int) -> SetupChange:
        old = get_carrier(current, id_)
        if (old.channel, old.kind) != (before.channel, before.kind):
            raise InvalidRequest(f"The kind of carrier {id_} was changed in the meantime. Reload the page.")
        new = _with_form_values(old, form_values, encrypt)
        if new == old:
            return SetupChange()
        _check_pools(current, new)
        names = [
            name for name in old.options.keys() | new.options.keys() if old.options.get(name) != new.options.get(name)
        ]
        names += ["countries"] if old.countries != new.countries else []
        entry = actor.audit_entry(store.clock.now(), "carrier.edit", id_, ", ".join(sorted(names)))
        return SetupChange(rows=[to_row("carrier", id_, new, None)], audit=entry)

    await store.setup.change(build_change)
    return get_carrier(store.setup.current, id_)


async def move(store: Store, actor: Actor, id_: str, step: Literal[-1, 1]) -> CarrierRecord:
    """Move a carrier up or down by one position. All carriers of its channel get priorities PRIORITY_STEP apart."""

    def build_change(current: Setup, _: int) -> SetupChange:
        moved = get_carrier(current, id_)
        order = carriers_of_channel(current, moved.channel)
        index = order.index(moved)
        new_index = min(max(index + step, 0), len(order) - 1)
        order.insert(new_index, order.pop(index))
        if index == new_index:
            return SetupChange()
        reordered = [
            replace(carrier, priority=PRIORITY_STEP * position) for position, carrier in enumerate(order, start=1)
        ]
        rows = [
            to_row("carrier", carrier.id, carrier, None)
            for carrier in reordered
            if carrier != current.records["carrier", carrier.id]
        ]
        entry = actor.audit_entry(
            store.clock.now(), "carrier.order", id_, ", ".join(carrier.id for carrier in reordered)
        )
        return SetupChange(rows=rows, audit=entry)

    await store.setup.change(build_change)
    return get_carrier(store.setup.current, id_)


async def remove(store: Store, actor: Actor, id_: str) -> None:
    """Remove a carrier.

    Its waiting messages use the channel's next carrier; without another carrier, the channel is simulated.
    """

    def build_change(current: Setup, _: int) -> SetupChange:
        carrier = get_carrier(current, id_)
        if users := carriers_overflowing_to(id_, current.carriers):
            raise InvalidRequest(f"{id_} is the overflow of a pool of {', '.join(users)}. Change that pool first.")
        entry = actor.audit_entry(store.clock.now(), "carrier.remove", id_, f"{carrier.channel} {carrier.kind}")
        return SetupChange(rows=[to_row("carrier", id_, None, None)], audit=entry)

    await store.setup.change(build_change)


async def send_test(
    store: Store, actor: Actor, failover: CarrierFailover, carrier: CarrierRecord, address: str, sender: str = ""
) -> Outcome:
    """Send a test message and return its outcome. Only the audit entry and the time of a successful test are stored.

    `sender`: address that an email is sent from; empty for the platform's sender.
    """
    check_address(carrier.channel, address)
    platform = store.setup.current.platform
    if carrier.channel == "email" and sender:
        check_address(carrier.channel, sender, param="sender")
        platform = replace(platform, sender=sender)
    message = store.clock.new_id(PREFIXES[carrier.channel])
    outbound = _test_message(carrier, address, platform, message)
    await store.audit.add(actor.audit_entry(store.clock.now(), "carrier.test", carrier.id, address))
    (attempt,) = await failover.send_with_failover(
        choose_in_order([carrier]), lambda _: outbound, timeout_s=TEST_TIMEOUT_S
    )
    if ("carrier", carrier.id) not in store.setup.current.records:
        failover.reset_failures(carrier.id)
    if isinstance(attempt.outcome, Accepted):
        await store.carrier_stats.record_test(carrier.id, store.clock.now())
    return attempt.outcome


def check_address(channel: str, address: str, param: str = "address") -> None:
    """Raise InvalidRequest if the address is not valid for the channel."""
    if channel == "email":
        if parse_address(address) is None:
            raise InvalidRequest("Enter an email address.", param=param)
        return
    try:
        parse_phone(address)
    except InvalidPhone:
        raise InvalidRequest("Enter a phone number such as +447400123456.", param="address") from None


def get_carrier(setup: Setup, id_: str) -> CarrierRecord:
    carrier = setup.records.get(("carrier", id_))
    if not isinstance(carrier, CarrierRecord):
        raise NotFound(f"There is no carrier {id_}.")
    return carrier


def carriers_of_channel(setup: Setup, channel: Channel) -> list[CarrierRecord]:
    """Return the carriers of a channel in the order in which they are tried."""
    carriers = [carrier for carrier in setup.carriers if carrier.channel == channel]
    return sorted(carriers, key=lambda carrier: (carrier.priority, carrier.id))


def _with_form_values(record: CarrierRecord, form_values: ParsedForm, encrypt: Encrypt) -> CarrierRecord:
    fields = dict(form_values.fields)
    countries = tuple(fields.pop("countries", ("*",)))
    kept_secrets = {
        name: value
        for name, value in record.options.items()
        if name in SECRET_OPTIONS and name not in form_values.removed_secrets
    }
    options = kept_secrets | encrypt_secrets(
        fields, lambda plaintext, field: encrypt(plaintext, f"carrier/{record.id}/{field}")
    )
    return replace(record, countries=countries, options=options)


def _check_usable(carriers: Carriers, record: CarrierRecord) -> None:
    if error := carriers.settings_error(record):
        raise InvalidRequest(error)


def _check_pools(setup: Setup, record: CarrierRecord) -> None:
    try:
        check_pools(record, setup.carriers)
    except InvalidValue as error:
        check_fields({"pools": f"{error.path}: {error.reason}."})


def _test_message(carrier: CarrierRecord, address: str, platform: Platform, id_: str) -> OutboundMessage:
    if carrier.channel == "email":
        parsed = parse_address(address)
        assert parsed
        mail = EmailContent(
            from_name=platform.brand,
            from_address=platform.sender,
            to=[parsed.original],
            subject=TEST_TEXT,
            text=TEST_TEXT,
        )
        return OutboundMessage(
            message_id=id_,
            address=parsed.normal,
            original_address=parsed.original,
            content=msgspec.json.encode(mail),
            attempt=0,
        )
    phone, segments = parse_phone(address), count_segments(TEST_TEXT)
    sms = SmsContent(
        body=TEST_TEXT,
        sender_id=platform.brand,
        platform_sender=True,
        encoding=segments.encoding,
        segments=segments.spec,
        parts=segments.udh,
    )
    # Every WhatsApp account has this template by default.
    whatsapp = WhatsappContent(template="hello_world", language="en_US", body=TEST_TEXT)
    content = msgspec.json.encode(sms if carrier.channel == "sms" else whatsapp)
    return OutboundMessage(message_id=id_, address=phone, content=content, attempt=0, country=country_of(phone))
