"""Carriers of the instance: setup form per kind, order, enabling, test sends and statistics."""

from typing import Any, get_args

import msgspec

from heliograph.dashboard import charts
from heliograph.dashboard.charts import Chart, Series
from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit, errors_of
from heliograph.domain.delivery.callbacks import calls_back, has_address, is_silent
from heliograph.domain.delivery.circuit import Circuit, health
from heliograph.domain.delivery.outcome import Accepted, Deferred
from heliograph.domain.delivery.routing import simulated_channels
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.domain.setup import carrier_form
from heliograph.domain.setup.carrier_kinds import CARRIER_KINDS, SECRETS, CarrierKind
from heliograph.domain.setup.records import CarrierRecord, Channel
from heliograph.manage import carriers
from heliograph.manage.carriers import CarrierChange
from heliograph.storage.carrier_stats import RecentUse
from heliograph.texts.dashboard_links import of_instance
from heliograph.texts.explain import cure_of_carrier

HERE = of_instance("carrier")


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a carrier test; `word` is the state of its badge."""

    address: str
    word: str
    text: str
    is_answer: bool  # True if `text` is the peer's reply, False if it is our own observation
    cure: str
    took_ms: int | None


# -- list ------------------------------------------------------------------------------------------------------------


async def show(visit: Visit) -> Page:
    now = visit.context.clock.now()
    recent = await visit.store.carrier_use.recent(now)
    known = {carrier.id for carrier in visit.setup.carriers}
    channels: list[dict[str, Any]] = [
        {
            "name": channel,
            "simulated": channel in simulated_channels(visit.setup.carriers),
            "lines": [_line(visit, carrier, recent) for carrier in carriers.of_channel(visit.setup, channel)],
        }
        for channel in get_args(Channel)
    ]
    others = [(id_, recent[id_]) for id_ in sorted(recent.keys() - known) if recent[id_].day.total]
    return Page("carriers.html", {"channels": channels, "others": others, "share": _share, "any": bool(known)})


def _line(visit: Visit, carrier: CarrierRecord, recent: dict[str, RecentUse]) -> dict[str, Any]:
    circuit = visit.store.circuits.current.get(carrier.id)
    options, use = carrier.options, recent.get(carrier.id, RecentUse())
    place = str(options.get("host") or options.get("base_url") or "")
    return {
        "carrier": carrier,
        "kind": CARRIER_KINDS[carrier.channel, carrier.kind].title,
        "place": place,
        "state": health(carrier.enabled, circuit, use.answered),
        "circuit": circuit,
        "cure": _cure(carrier, circuit),
        "hour": use.hour,
    }


def _cure(carrier: CarrierRecord, circuit: Circuit | None) -> str:
    return cure_of_carrier(carrier.channel, {"carrier": carrier.kind, "text": circuit.reason}) if circuit else ""


def _share(part: int, whole: int) -> str:
    return charts.percent(100 * part / whole) if whole else "–"


# -- one carrier -----------------------------------------------------------------------------------------------------


async def show_one(visit: Visit) -> Page:
    return await _one(visit, _carrier(visit))


async def _one(
    visit: Visit, carrier: CarrierRecord, errors: dict[str, str] | None = None, tested: Tested | None = None
) -> Page:
    now = visit.context.clock.now()
    recent = (await visit.store.carrier_use.recent(now)).get(carrier.id, RecentUse())
    called_at = (await visit.store.carrier_use.callbacks()).get(carrier.id)
    kind = (carrier.channel, carrier.kind)
    texts = carrier_form.shown(kind, carrier.options | {"countries": carrier.countries})
    facts = [(one.label, "set" if one.secret else texts[one.name]) for one in carrier_form.inputs(kind)
             if one.name in texts or (one.secret and one.name in carrier.options)]  # fmt: skip
    order = carriers.of_channel(visit.setup, carrier.channel)
    circuit = visit.store.circuits.current.get(carrier.id)
    values = {
        "carrier": carrier,
        "state": health(carrier.enabled, circuit, recent.answered),
        "cure": _cure(carrier, circuit),
        "kind": CARRIER_KINDS[kind],
        "facts": [(label, "All countries" if text == "*" else text) for label, text in facts],
        "circuit": circuit,
        "recent": recent,
        "chart": _chart(visit, recent, now) if recent.hour.total else None,
        "share": _share,
        "order": order,
        "alone": not [one for one in order if one.enabled and one.id != carrier.id],
        "last": len(order) == 1,
        "callback": f"{visit.context.base_url}/carriers/{carrier.id}/callback" if has_address(carrier) else "",
        "called_at": called_at,
        "silent": calls_back(carrier) and is_silent(recent.day.accepted, recent.hour.accepted, called_at, now),
        "errors": errors or {},
        "tested": tested,
        "address": visit.form.get("address", "") or (visit.person.email if carrier.channel == "email" else ""),
    }
    return Page("carrier.html", values, 400 if errors else 200)


def _carrier(visit: Visit) -> CarrierRecord:
    try:
        return carriers.find_carrier(visit.setup, visit.params["carrier"])
    except NotFound as refusal:
        raise Gone(refusal.message) from None


def _chart(visit: Visit, recent: RecentUse, now: int) -> Chart:
    uses = recent.minutes
    series = [
        Series("Accepted", "delivered", [use.accepted for use in uses]),
        Series("Refused", "bounced", [use.refused for use in uses]),
        Series("Deferred", "complained", [use.put_off for use in uses]),
    ]
    times = charts.last_hour(now, visit.zone)
    return charts.bars("The last hour, by minute", times, series, text=charts.count, least=2)


async def change(visit: Visit) -> Answer:
    carrier, form = _carrier(visit), visit.form
    if "move" in form:
        await carriers.move(visit.store, visit.actor, carrier.id, -1 if form["move"] == "up" else 1)
        return Redirect(f"{HERE}#{carrier.channel}", f"The order for {carrier.id} has changed.")
    wanted = CarrierChange(enabled=form.get("enabled") == "yes")
    carrier = await carriers.change(visit.store, visit.actor, carrier.id, wanted)
    return Redirect(f"{HERE}/{carrier.id}", f"{carrier.id} is {'enabled' if carrier.enabled else 'disabled'}.")


async def remove(visit: Visit) -> Answer:
    carrier = _carrier(visit)
    await carriers.remove(visit.store, visit.actor, carrier.id)
    return Redirect(HERE, f"{carrier.id} is removed.")


async def test(visit: Visit) -> Answer:
    carrier = _carrier(visit)
    try:
        tested = await _test(visit, carrier)
    except InvalidRequest as refusal:
        return await _one(visit, carrier, {"address": refusal.message})
    return await _one(visit, carrier, tested=tested)


async def _test(visit: Visit, carrier: CarrierRecord) -> Tested:
    address = visit.form.get("address", "").strip()
    outcome = await carriers.test(visit.store, visit.actor, visit.context.handover, carrier, address)
    word = "ok" if isinstance(outcome, Accepted) else "deferred" if isinstance(outcome, Deferred) else "refused"
    detail = outcome.detail
    codes = [str(detail[name]) for name in ("code", "enhanced") if detail.get(name) is not None]
    text = str(detail.get("text") or "")
    said = " ".join([*(code for code in codes if code not in text), text])
    cure = "" if word == "ok" else cure_of_carrier(carrier.channel, detail | {"carrier": carrier.kind})
    return Tested(
        address=address,
        word=word,
        text=said,
        is_answer=bool(codes) or word == "ok",
        cure=cure,
        took_ms=detail.get("duration_ms"),
    )


# -- form ------------------------------------------------------------------------------------------------------------


async def choose(visit: Visit) -> Answer:
    """Show the choice of carrier kinds; with `kind`, show its form."""
    if kind := carrier_form.kind_of(visit.query.get("kind", "")):
        return _form(visit, kind)
    wanted = visit.query.get("channel", "")
    kinds = [
        (channel, [(f"{channel}-{name}", said) for (of, name), said in CARRIER_KINDS.items() if of == channel])
        for channel in get_args(Channel)
        if wanted in ("", channel)
    ]
    return Page("carrier_new.html", {"kinds": kinds, "wanted": wanted})


async def create(visit: Visit) -> Answer:
    kind = carrier_form.kind_of(visit.form.get("kind", ""))
    if kind is None:
        raise Gone
    id_, tested = visit.form.get("id", "").strip(), None
    seal, live = visit.tools.seal, visit.context.handover.carriers
    try:
        made = carriers.draft(visit.setup, seal, live, kind, id_, visit.form)
        if visit.form.get("then") == "test":
            tested = await _test(visit, made)
            if tested.word != "ok":  # do not save the carrier: a disabled carrier would hold up mail
                return _form(visit, kind, tested=tested)
        made = await carriers.create(visit.store, visit.actor, made)
    except InvalidRequest as refusal:
        return _form(visit, kind, errors=errors_of(refusal))
    if tested:
        return await _one(visit, made, tested=tested)
    return Redirect(f"{HERE}/{made.id}", f"{made.id} is set up. Send a test through it.")


async def edit(visit: Visit) -> Answer:
    carrier = _carrier(visit)
    return _form(visit, (carrier.channel, carrier.kind), carrier)


async def save(visit: Visit) -> Answer:
    carrier = _carrier(visit)
    seal, live = visit.tools.seal, visit.context.handover.carriers
    try:
        await carriers.edit(visit.store, visit.actor, seal, live, carrier.id, visit.form)
    except InvalidRequest as refusal:
        return _form(visit, (carrier.channel, carrier.kind), carrier, errors=errors_of(refusal))
    return Redirect(f"{HERE}/{carrier.id}", "Saved. Send a test to see that it works.")


def _form(
    visit: Visit,
    kind: CarrierKind,
    carrier: CarrierRecord | None = None,
    errors: dict[str, str] | None = None,
    tested: Tested | None = None,  # a failed test
) -> Page:
    typed = visit.request.method == "POST"
    inputs = carrier_form.inputs(kind)
    if typed:
        texts = {one.name: visit.form.get(one.name, "") for one in inputs if not one.secret}
    else:
        texts = carrier_form.shown(kind, carrier.options | {"countries": carrier.countries}) if carrier else {}
    wrong = errors or {}
    values = {
        "carrier": carrier,
        "channel": kind[0],
        "kind": CARRIER_KINDS[kind],
        "kind_id": "-".join(kind),
        "first": [one for one in inputs if not one.more],
        "more": [one for one in inputs if one.more],
        "open": any(one.name in wrong or texts.get(one.name, "") not in ("", "*") for one in inputs if one.more),
        "texts": texts,
        "saved": set(carrier.options) & SECRETS if carrier else set(),
        "id": visit.form.get("id", "") if typed else _free_id(visit, kind[1].replace("_", "-")),
        "errors": wrong,
        "typed": typed,
        "tested": tested,
        "address": visit.form.get("address", visit.person.email if kind[0] == "email" else ""),
    }
    return Page("carrier_form.html", values, 400 if errors or tested else 200)


def _free_id(visit: Visit, name: str) -> str:
    taken = {carrier.id for carrier in visit.setup.carriers}
    return next(id_ for id_ in (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3))) if id_ not in taken)
