"""Carriers of the instance: health, throughput, order, on and off, and a test message through one of them."""

import re

import msgspec

from heliograph.dashboard import charts
from heliograph.dashboard.charts import Chart, Series
from heliograph.dashboard.visit import Answer, Page, Redirect, Visit
from heliograph.manage import carriers
from heliograph.manage.carriers import CarrierChange
from heliograph.rules.outcome import Accepted, Deferred, Outcome
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.setup.records import PRIORITY_MAX
from heliograph.rules.setup.secrets import FIELDS
from heliograph.storage.carrier_use import RecentUse

HERE = "/dashboard/operator/carriers"
NUMBER = re.compile("[+-]?[0-9]{1,7}")


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """How a test went: `word` as of a badge."""

    carrier: str
    address: str
    word: str
    text: str


async def change(visit: Visit) -> Answer:
    id_, form = visit.params["carrier"], visit.form
    given = form.get("priority", "").strip()
    wanted = CarrierChange(
        enabled=form["enabled"] == "yes" if "enabled" in form else None,
        priority=None if "priority" not in form else int(given) if NUMBER.fullmatch(given) else PRIORITY_MAX + 1,
    )
    try:
        carrier = await carriers.change(visit.store, visit.actor, id_, wanted)
    except InvalidRequest as refusal:
        return await show(visit, {id_: refusal.message})
    state = "enabled" if carrier.enabled else "disabled"
    return Redirect(HERE, f"{id_} is {state}, with priority {carrier.priority}.")


async def test(visit: Visit) -> Answer:
    id_, address = visit.params["carrier"], visit.form.get("address", "").strip()
    try:
        outcome = await carriers.test(visit.store, visit.actor, visit.context.handover, id_, address)
    except InvalidRequest as refusal:
        return await show(visit, {f"test-{id_}": refusal.message})
    return await show(visit, tested=_told(id_, address, outcome))


def _told(carrier: str, address: str, outcome: Outcome) -> Tested:
    word = "ok" if isinstance(outcome, Accepted) else "waiting" if isinstance(outcome, Deferred) else "refused"
    text = str(outcome.detail.get("text") or "")
    return Tested(carrier=carrier, address=address, word=word, text=text)


def _chart(id_: str, recent: RecentUse, now: int) -> Chart:
    uses = recent.minutes
    series = [
        Series("Taken", "delivered", [use.accepted for use in uses]),
        Series("Refused", "bounced", [use.refused for use in uses]),
        Series("Put off", "complained", [use.put_off for use in uses]),
    ]
    return charts.bars(f"{id_}, last hour by minute", charts.last_hour(now), series, text=charts.count, least=2)


def _share(part: int, whole: int) -> str:
    return charts.percent(100 * part / whole) if whole else "–"


async def show(visit: Visit, errors: dict[str, str] | None = None, tested: Tested | None = None) -> Page:
    ordered = sorted(visit.setup.carriers, key=lambda c: (c.channel, c.priority, c.id))
    shown = {c.id: {name: value for name, value in c.options.items() if name not in FIELDS} for c in ordered}
    now = visit.context.clock.now()
    recent = await visit.store.carrier_use.recent(now)
    known = {c.id for c in ordered}
    typed = {"priority": visit.form.get("priority", ""), "address": visit.form.get("address", "")}
    values = {
        "carriers": ordered,
        "options": shown,
        "circuits": visit.store.circuits.current,
        "recent": recent,
        "quiet": RecentUse(),
        "others": sorted(recent.keys() - known),
        "charts": {id_: _chart(id_, recent[id_], now) for id_ in known & recent.keys() if recent[id_].hour.total},
        "share": _share,
        "errors": errors or {},
        "tested": tested,
        "asked": visit.params.get("carrier", ""),
        "typed": typed,
    }
    return Page("carriers.html", values, 400 if errors else 200)
