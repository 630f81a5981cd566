"""Carriers of the instance: setup form per kind, order, enabling, test sends and statistics."""

from typing import Any, get_args

import msgspec

from heliograph.dashboard import charts
from heliograph.dashboard.charts import Chart, Series
from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect, field_errors
from heliograph.dashboard.render import format_number
from heliograph.domain.delivery.callbacks import expects_callbacks, lacks_callbacks, supports_callbacks
from heliograph.domain.delivery.circuit import Circuit, circuit_health
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome
from heliograph.domain.delivery.routing import simulated_channels
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.domain.setup import carrier_form
from heliograph.domain.setup.carrier_kinds import CARRIER_KINDS, SECRET_OPTIONS, CarrierKind
from heliograph.domain.setup.records import CarrierRecord, Channel
from heliograph.manage import carriers
from heliograph.manage.carriers import CarrierChange
from heliograph.storage.carrier_stats import RecentCarrierCounts
from heliograph.texts.dashboard_links import operator_page
from heliograph.texts.explain import carrier_advice

CARRIERS_PATH = operator_page("carrier")


class TestResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a carrier's test. `status`: state of the badge."""

    address: str
    status: str
    title: str
    text: str
    is_remote_reply: bool  # False: `text` is our own observation
    fix: str
    duration_ms: int | None


# -- list ------------------------------------------------------------------------------------------------------------


async def show(request: PageRequest) -> Page:
    now = request.context.clock.now()
    usage = await request.store.carrier_stats.read_recent(now)
    carrier_ids = {carrier.id for carrier in request.setup.carriers}
    channels: list[dict[str, Any]] = [
        {
            "name": channel,
            "simulated": channel in simulated_channels(request.setup.carriers),
            "lines": [
                _carrier_row(request, carrier, usage)
                for carrier in carriers.carriers_of_channel(request.setup, channel)
            ],
        }
        for channel in get_args(Channel)
    ]
    removed_carriers = [(id_, usage[id_]) for id_ in sorted(usage.keys() - carrier_ids) if usage[id_].day.total]
    return Page(
        "carriers.html",
        {"channels": channels, "others": removed_carriers, "share": _format_share, "any": bool(carrier_ids)},
    )


def _carrier_row(request: PageRequest, carrier: CarrierRecord, usage: dict[str, RecentCarrierCounts]) -> dict[str, Any]:
    circuit = request.store.circuits.current.get(carrier.id)
    options, carrier_usage = carrier.options, usage.get(carrier.id, RecentCarrierCounts())
    server = str(options.get("host") or options.get("base_url") or "")
    return {
        "carrier": carrier,
        "kind": CARRIER_KINDS[carrier.channel, carrier.kind].title,
        "server": server,
        "state": circuit_health(carrier.enabled, circuit, carrier_usage.has_accepted),
        "circuit": circuit,
        "fix": _circuit_fix(carrier, circuit),
        "hour": carrier_usage.hour,
    }


def _circuit_fix(carrier: CarrierRecord, circuit: Circuit | None) -> str:
    return carrier_advice(carrier.channel, {"carrier": carrier.kind, "text": circuit.reason}) if circuit else ""


def _format_share(count: int, total: int) -> str:
    """Return the count with its share of `total`; a dash if `total` is 0."""
    share = f" ({charts.format_percent(100 * count / total)})" if count else ""
    return f"{format_number(count)}{share}" if total else "–"


# -- one carrier -----------------------------------------------------------------------------------------------------


async def show_carrier(request: PageRequest) -> Page:
    return await _carrier_page(request, _find_carrier(request))


async def _carrier_page(
    request: PageRequest,
    carrier: CarrierRecord,
    errors: dict[str, str] | None = None,
    test_result: TestResult | None = None,
) -> Page:
    now = request.context.clock.now()
    usage = (await request.store.carrier_stats.read_recent(now)).get(carrier.id, RecentCarrierCounts())
    called_at = (await request.store.carrier_stats.read_callbacks()).get(carrier.id)
    kind = (carrier.channel, carrier.kind)
    texts = carrier_form.form_values(kind, carrier.options | {"countries": carrier.countries})
    settings = [(item.label, "set" if item.secret else texts[item.name]) for item in carrier_form.form_inputs(kind)
             if item.name in texts or (item.secret and item.name in carrier.options)]  # fmt: skip
    order = carriers.carriers_of_channel(request.setup, carrier.channel)
    circuit = request.store.circuits.current.get(carrier.id)
    values = {
        "carrier": carrier,
        "state": circuit_health(carrier.enabled, circuit, usage.has_accepted),
        "fix": _circuit_fix(carrier, circuit),
        "kind": CARRIER_KINDS[kind],
        "facts": [(label, "All countries" if text == "*" else text) for label, text in settings],
        "circuit": circuit,
        "recent": usage,
        "rates": await request.store.provider_states.read_rates([carrier], now),
        "chart": _chart(request, usage, now) if usage.hour.total else None,
        "share": _format_share,
        "order": order,
        "alone": not [item for item in order if item.enabled and item.id != carrier.id],
        "last": len(order) == 1,
        "callback": f"{request.context.base_url}/carriers/{carrier.id}/callback" if supports_callbacks(carrier) else "",
        "called_at": called_at,
        "silent": expects_callbacks(carrier)
        and lacks_callbacks(usage.day.accepted, usage.hour.accepted, called_at, now),
        "tested": test_result,
        "address": request.form.get("address", "") or (request.user.email if carrier.channel == "email" else ""),
        "sender": request.form.get("sender", "") or request.setup.platform.sender,
    }
    return Page.form("carrier.html", values, errors)


def _find_carrier(request: PageRequest) -> CarrierRecord:
    try:
        return carriers.get_carrier(request.setup, request.params["carrier"])
    except NotFound as refusal:
        raise PageNotFound(refusal.message) from None


def _chart(request: PageRequest, usage: RecentCarrierCounts, now: int) -> Chart:
    minutes = usage.minutes
    series = [
        Series("Accepted", "delivered", [minute.accepted for minute in minutes]),
        Series("Refused", "bounced", [minute.refused for minute in minutes]),
        Series("Deferred", "complained", [minute.put_off for minute in minutes]),
    ]
    time_buckets = charts.last_hour_buckets(now, request.time_zone)
    return charts.draw_chart("Last hour, by minute", time_buckets, series, format_value=charts.format_count, top_min=2)


async def change(request: PageRequest) -> PageResponse:
    carrier, form = _find_carrier(request), request.form
    if "move" in form:
        await carriers.move(request.store, request.actor, carrier.id, -1 if form["move"] == "up" else 1)
        return Redirect(f"{CARRIERS_PATH}#{carrier.channel}", f"Order of {carrier.id} changed.")
    carrier_change = CarrierChange(enabled=form.get("enabled") == "yes")
    carrier = await carriers.change(request.store, request.actor, carrier.id, carrier_change)
    return Redirect(f"{CARRIERS_PATH}/{carrier.id}", f"{carrier.id} is {'enabled' if carrier.enabled else 'disabled'}.")


async def remove(request: PageRequest) -> PageResponse:
    carrier = _find_carrier(request)
    try:
        await carriers.remove(request.store, request.actor, carrier.id)
    except InvalidRequest as refusal:
        return Redirect(f"{CARRIERS_PATH}/{carrier.id}", refusal.message)
    return Redirect(CARRIERS_PATH, f"{carrier.id} removed.")


async def test(request: PageRequest) -> PageResponse:
    carrier = _find_carrier(request)
    try:
        test_result = await _run_test(request, carrier)
    except InvalidRequest as refusal:
        return await _carrier_page(request, carrier, {refusal.param or "address": refusal.message})
    return await _carrier_page(request, carrier, test_result=test_result)


async def _run_test(request: PageRequest, carrier: CarrierRecord) -> TestResult:
    address = request.form.get("address", "").strip()
    sender = request.form.get("sender", "").strip()
    outcome = await carriers.send_test(request.store, request.actor, request.context.failover, carrier, address, sender)
    status = "ok" if isinstance(outcome, Accepted) else "deferred" if isinstance(outcome, Deferred) else "refused"
    detail = outcome.detail
    codes = [str(detail[name]) for name in ("code", "enhanced") if detail.get(name) is not None]
    text = str(detail.get("text") or "")
    reply = " ".join([*(code for code in codes if code not in text), text])
    fix = "" if status == "ok" else carrier_advice(carrier.channel, detail | {"carrier": carrier.kind})
    return TestResult(
        address=address,
        status=status,
        title=result_title(outcome, has_reply=bool(codes)),
        text=reply,
        is_remote_reply=bool(codes) or status == "ok",
        fix=fix,
        duration_ms=detail.get("duration_ms"),
    )


def result_title(outcome: Outcome, *, has_reply: bool) -> str:
    """Return the title of a test result. `has_reply`: the carrier replied with a code."""
    if isinstance(outcome, Accepted):
        return "Test message accepted"
    if not isinstance(outcome, Deferred):
        return "Test message refused"
    if outcome.unreachable:  # the carrier would accept no message at all
        return "Test failed: connection or login refused" if has_reply else "Test failed: cannot connect"
    if has_reply:
        return "Test failed: try again later"
    is_silent = outcome.uncertain or outcome.detail.get("uncertain")
    return "Test failed: no response" if is_silent else "Test failed"


# -- form ------------------------------------------------------------------------------------------------------------


async def choose(request: PageRequest) -> PageResponse:
    """Show the kinds of carriers; with `kind`, the form of this kind."""
    if kind := carrier_form.parse_kind(request.query.get("kind", "")):
        return _form(request, kind)
    channel_filter = request.query.get("channel", "")
    kinds = [
        (
            channel,
            [
                (f"{channel}-{name}", carrier_kind)
                for (kind_channel, name), carrier_kind in CARRIER_KINDS.items()
                if kind_channel == channel
            ],
        )
        for channel in get_args(Channel)
        if channel_filter in ("", channel)
    ]
    return Page("carrier_new.html", {"kinds": kinds, "wanted": channel_filter})


async def create(request: PageRequest) -> PageResponse:
    kind = carrier_form.parse_kind(request.form.get("kind", ""))
    if kind is None:
        raise PageNotFound
    id_, test_result = request.form.get("id", "").strip(), None
    encrypt, live_carriers = request.tools.encrypt, request.context.failover.carriers
    try:
        carrier = carriers.draft_carrier(request.setup, encrypt, live_carriers, kind, id_, request.form)
        if request.form.get("then") == "test":
            test_result = await _run_test(request, carrier)
            if test_result.status != "ok":  # not saved, because messages would wait for a disabled carrier
                return _form(request, kind, test_result=test_result)
        carrier = await carriers.create(request.store, request.actor, carrier)
    except InvalidRequest as refusal:
        return _form(request, kind, errors=field_errors(refusal))
    if test_result:
        return await _carrier_page(request, carrier, test_result=test_result)
    return Redirect(f"{CARRIERS_PATH}/{carrier.id}", f"{carrier.id} added. Send a test message.")


async def edit(request: PageRequest) -> PageResponse:
    carrier = _find_carrier(request)
    return _form(request, (carrier.channel, carrier.kind), carrier)


async def save(request: PageRequest) -> PageResponse:
    carrier = _find_carrier(request)
    encrypt, live_carriers = request.tools.encrypt, request.context.failover.carriers
    try:
        await carriers.edit(request.store, request.actor, encrypt, live_carriers, carrier.id, request.form)
    except InvalidRequest as refusal:
        return _form(request, (carrier.channel, carrier.kind), carrier, errors=field_errors(refusal))
    return Redirect(f"{CARRIERS_PATH}/{carrier.id}", "Saved. Send a test message to check that it works.")


def _form(
    request: PageRequest,
    kind: CarrierKind,
    carrier: CarrierRecord | None = None,
    errors: dict[str, str] | None = None,
    test_result: TestResult | None = None,  # None without a failed test
) -> Page:
    is_submitted = request.http.method == "POST"
    inputs = carrier_form.form_inputs(kind)
    if is_submitted:
        texts = {item.name: request.form.get(item.name, "") for item in inputs if not item.secret}
    else:
        texts = carrier_form.form_values(kind, carrier.options | {"countries": carrier.countries}) if carrier else {}
    errors_by_field = errors or {}
    values = {
        "carrier": carrier,
        "channel": kind[0],
        "kind": CARRIER_KINDS[kind],
        "kind_id": "-".join(kind),
        "first": [item for item in inputs if not item.advanced],
        "more": [item for item in inputs if item.advanced],
        "open": any(
            item.name in errors_by_field or texts.get(item.name, "") not in ("", "*")
            for item in inputs
            if item.advanced
        ),
        "texts": texts,
        "saved": set(carrier.options) & SECRET_OPTIONS if carrier else set(),
        "id": request.form.get("id", "") if is_submitted else _free_id(request, kind[1].replace("_", "-")),
        "errors": errors_by_field,
        "typed": is_submitted,
        "tested": test_result,
        "address": request.form.get("address", request.user.email if kind[0] == "email" else ""),
        "sender": request.form.get("sender", request.setup.platform.sender),
    }
    return Page("carrier_form.html", values, 400 if errors or test_result else 200)


def _free_id(request: PageRequest, name: str) -> str:
    used_ids = {carrier.id for carrier in request.setup.carriers}
    return next(
        id_ for id_ in (name, *(f"{name}-{number}" for number in range(2, len(used_ids) + 3))) if id_ not in used_ids
    )
