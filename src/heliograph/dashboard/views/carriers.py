"""Carriers of the instance: health, throughput, order, on and off, and a test message through one of them."""

import re

import msgspec
from msgspec.structs import replace

from heliograph.channels.carrier import Parcel
from heliograph.dashboard import charts
from heliograph.dashboard.charts import Chart, Series
from heliograph.dashboard.visit import Answer, Gone, Page, Redirect, Visit
from heliograph.handover import first_of
from heliograph.rules.address import parse_address
from heliograph.rules.content import EmailContent, SmsContent, WhatsappContent
from heliograph.rules.gsm import segment
from heliograph.rules.ids import PREFIXES
from heliograph.rules.outcome import Accepted, Deferred, Outcome
from heliograph.rules.phone import country_of, read_phone
from heliograph.rules.refusals import InvalidPhone
from heliograph.rules.setup.records import PRIORITY_MAX, CarrierRecord, Platform
from heliograph.rules.setup.secrets import FIELDS
from heliograph.rules.setup.snapshot import Setup, to_row
from heliograph.storage import carrier_use
from heliograph.storage.carrier_use import Recent
from heliograph.storage.setup import SetupChange

HERE = "/dashboard/operator/carriers"
TEST_S = 20.0
TEXT = "This is a test of Heliograph."


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """How a test went: `word` as of a badge."""

    carrier: str
    address: str
    word: str
    text: str


async def show(visit: Visit) -> Answer:
    return await _page(visit)


async def change(visit: Visit) -> Answer:
    carrier = _find(visit)
    enabled = visit.form.get("enabled", "yes" if carrier.enabled else "no") == "yes"
    given = visit.form.get("priority", str(carrier.priority)).strip()
    priority = int(given) if re.fullmatch("[+-]?[0-9]{1,7}", given) else PRIORITY_MAX + 1
    if abs(priority) > PRIORITY_MAX:
        return await _page(visit, {carrier.id: "A whole number; the lowest is asked first."})
    fields = {"enabled": enabled, "priority": priority}

    def decide(current: Setup) -> SetupChange:
        before = current.records.get(("carrier", carrier.id))
        if not isinstance(before, CarrierRecord) or replace(before, **fields) == before:
            return SetupChange()
        return SetupChange(rows=[to_row("carrier", carrier.id, replace(before, **fields), None)])

    await visit.change_setup("carrier.change", carrier.id, decide, f"enabled={enabled}, priority={priority}")
    return Redirect(HERE, f"{carrier.id} is {'enabled' if enabled else 'disabled'}, with priority {priority}.")


async def test(visit: Visit) -> Answer:
    """One made-up message; nothing of it is kept but the audit entry."""
    carrier, address = _find(visit), visit.form.get("address", "").strip()
    try:
        parcel = _parcel(carrier, address, visit.setup.platform, visit.context.clock.new_id(PREFIXES[carrier.channel]))
    except (ValueError, InvalidPhone):
        what = "an email address" if carrier.channel == "email" else "a phone number such as +447400123456"
        return await _page(visit, {f"test-{carrier.id}": f"Type {what}."})
    await visit.note("carrier.test", carrier.id, address)
    (asked,) = await visit.context.handover.in_turn(first_of([carrier]), lambda _: parcel, within_s=TEST_S)
    return await _page(visit, tested=_told(carrier, address, asked.outcome))


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


def _told(carrier: CarrierRecord, address: str, outcome: Outcome) -> Tested:
    word = "ok" if isinstance(outcome, Accepted) else "waiting" if isinstance(outcome, Deferred) else "refused"
    text = str(outcome.detail.get("text") or "")
    return Tested(carrier=carrier.id, address=address, word=word, text=text)


def _chart(id_: str, recent: Recent, now: int) -> Chart:
    uses = recent.minutes
    series = [
        Series("Taken", "delivered", [use.accepted for use in uses]),
        Series("Refused", "bounced", [use.refused for use in uses]),
        Series("Put off", "complained", [use.put_off for use in uses]),
    ]
    return charts.bars(f"{id_}, last hour by minute", charts.last_hour(now), series, text=charts.count, least=2)


def _share(part: int, whole: int) -> str:
    return charts.percent(100 * part / whole) if whole else "–"


def _find(visit: Visit) -> CarrierRecord:
    carrier = next((c for c in visit.setup.carriers if c.id == visit.params["carrier"]), None)
    if carrier is None:
        raise Gone
    return carrier


async def _page(visit: Visit, errors: dict[str, str] | None = None, tested: Tested | None = None) -> Page:
    carriers = sorted(visit.setup.carriers, key=lambda c: (c.channel, c.priority, c.id))
    shown = {c.id: {name: value for name, value in c.options.items() if name not in FIELDS} for c in carriers}
    now = visit.context.clock.now()
    recent = await visit.context.store.database.read(lambda tx: carrier_use.recent(tx, now))
    known = {c.id for c in carriers}
    typed = {"priority": visit.form.get("priority", ""), "address": visit.form.get("address", "")}
    values = {
        "carriers": carriers,
        "options": shown,
        "circuits": visit.setup.circuits,
        "recent": recent,
        "quiet": Recent(),
        "others": sorted(recent.keys() - known),
        "charts": {id_: _chart(id_, recent[id_], now) for id_ in known & recent.keys() if recent[id_].hour.total},
        "share": _share,
        "errors": errors or {},
        "tested": tested,
        "asked": visit.params.get("carrier", ""),
        "typed": typed,
    }
    return Page("carriers.html", values, 400 if errors else 200)
