"""Liveness, readiness and metrics endpoints, for load balancers and Prometheus."""

import asyncio
import hmac
from collections.abc import Mapping, Sequence
from math import inf
from typing import Annotated

import msgspec

from heliograph.accept.context import Context
from heliograph.api.call import Call
from heliograph.domain.delivery.callbacks import expects_callbacks
from heliograph.domain.delivery.lanes import LANE_BY_CHANNEL
from heliograph.domain.field_docs import describe
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.network.client_address import is_loopback_or_in
from heliograph.domain.operations.instance_name import public_instance_name
from heliograph.domain.refusals import NotFound, ServiceUnavailable
from heliograph.runtime.metrics import CONTENT_TYPE, ScrapeGauges, flush
from heliograph.runtime.metrics import render as metrics_text
from heliograph.runtime.threads import READ_POOL
from heliograph.storage.dead_letters import Backlog
from heliograph.storage.outbox import LaneDepth
from heliograph.web.request import Response
from heliograph.web.route import json_response

FORWARDED_HEADERS = (b"x-forwarded-for", b"forwarded")
INSTANCE_HEADER = b"heliograph-instance"


class Health(msgspec.Struct, frozen=True):
    status: Annotated[str, describe("Always `ok`.", fixed=True)] = "ok"


HEALTHY_BODY = msgspec.json.encode(Health())


async def healthz(call: Call) -> Response:
    """Return 200 with the instance name, by which local commands detect the service of another instance."""
    owner = call.context.store.owner.partition("/")[0]
    return Response(200, HEALTHY_BODY, [(INSTANCE_HEADER, public_instance_name(owner).encode())])


async def readyz(call: Call) -> Response:
    """Return 200 if this process is ready, otherwise 503.

    The process is not ready during startup and shutdown, if the database does not commit within a second, or if it is
    a worker that claims no messages because its clock is wrong.
    """
    await _check_ready(call.context)
    return json_response(Health())


async def _check_ready(context: Context) -> None:
    if context.state.not_ready:
        raise ServiceUnavailable("Shutting down.", retry_after=1)
    if context.is_worker and context.clock.clock_error():
        raise ServiceUnavailable("This machine's clock is wrong: no messages are processed.", retry_after=1)
    await context.store.maintenance.can_commit.get()


async def metrics(call: Call) -> Response:
    """Return the metrics to clients on loopback, in the operator's IP ranges or with the token, and 404 to others."""
    if not _may_read_metrics(call):
        raise NotFound()
    state = call.context.state
    if state.metrics_future is None or state.metrics_future.done():
        state.metrics_future = asyncio.ensure_future(_render_metrics(call.context))
    return Response(200, await asyncio.shield(state.metrics_future), content_type=CONTENT_TYPE)


async def _render_metrics(context: Context) -> bytes:
    """Render the metrics in a thread; concurrent requests share the result."""
    families = await _collect_gauges(context)
    flush()
    return await READ_POOL.run(metrics_text, families)


async def _collect_gauges(context: Context) -> ScrapeGauges:
    """Return gauges measured now, from the database and the machine. If a query fails, only its gauges are missing."""
    families, store = ScrapeGauges(), context.store
    now, carriers = context.clock.now(), store.setup.current.carriers
    ready, queues, backlog, last_callbacks, rates = await asyncio.gather(
        _check_ready(context),
        store.outbox.depth_probe.get(),
        store.dead_letters.backlog.get(),
        store.carrier_stats.last_callbacks.get(),
        store.provider_states.read_rates(carriers, now),
        return_exceptions=True,
    )
    families.gauge("build_info", "Always 1.", 1, **context.build_info)
    families.gauge("ready", "1 if /readyz succeeds.", not isinstance(ready, BaseException))
    _add_queue_gauges(families, context, [] if isinstance(queues, BaseException) else queues)
    _add_backlog_gauges(families, now, None if isinstance(backlog, BaseException) else backlog)
    _add_callback_gauges(families, context, None if isinstance(last_callbacks, BaseException) else last_callbacks)
    rate = families.declare(
        "provider_rate", "Emails per minute that may be sent to a provider now.", "carrier", "provider", "source"
    )
    for measured in [] if isinstance(rates, BaseException) else rates:
        if measured.per_minute:
            rate(measured.rate, *measured.key)
    _add_host_gauges(families, context)
    return families


def _add_queue_gauges(families: ScrapeGauges, context: Context, queues: Sequence[LaneDepth]) -> None:
    """Add gauges of the queues.

    `queues` is empty if the database is unavailable. Then no value is shown, because 0 would be misleading.
    """
    depth = families.declare("outbox_depth", "Recipients that are queued or being sent.", "lane")
    oldest_gauge = families.declare("outbox_oldest_seconds", "Age of the oldest queued recipient.", "lane")
    held_gauge = families.declare("held_messages", "Recipients that cannot be sent until an operator acts.", "reason")
    for lane in queues:
        depth(lane.waiting, lane.lane)
        since = context.clock.now() if lane.since is None else lane.since
        # `since` is in the future if all messages are scheduled for later.
        oldest_gauge(max(0, context.clock.now() - since) / SECOND_MS, lane.lane)
    for reason, count in (_held_by_reason(context, queues) if queues else {}).items():
        held_gauge(count, reason)
    for carrier in context.store.setup.current.carriers:
        labels = {"carrier": carrier.id, "channel": carrier.channel}
        reachable = carrier.id not in context.store.circuits.current
        families.gauge("carrier_reachable", "0 while the carrier's circuit is open.", reachable, **labels)


def _add_backlog_gauges(families: ScrapeGauges, now: int, backlog: Backlog | None) -> None:
    dead_letters = families.declare("quarantined_messages", "Messages in the dead-letter queue.")
    pending_gauge = families.declare("webhook_pending", "Webhook deliveries that are pending.")
    lag = families.declare("webhook_lag_seconds", "Age of the oldest pending webhook delivery.")
    if backlog:
        dead_letters(backlog.dead_letters)
        pending_gauge(sum(hook.waiting for hook in backlog.webhooks))
        lag(max((now - hook.since for hook in backlog.webhooks), default=0) / SECOND_MS)


def _add_callback_gauges(families: ScrapeGauges, context: Context, last_callbacks: Mapping[str, int] | None) -> None:
    since = families.declare(
        "carrier_last_callback_seconds", "Time since the carrier's last verified callback.", "carrier", "channel"
    )
    if last_callbacks is None:
        return
    for carrier in context.store.setup.current.carriers:
        if carrier.id in last_callbacks:
            since(max(0, context.clock.now() - last_callbacks[carrier.id]) / SECOND_MS, carrier.id, carrier.channel)
        elif expects_callbacks(carrier):
            since(inf, carrier.id, carrier.channel)


def _add_host_gauges(families: ScrapeGauges, context: Context) -> None:
    now, machine = context.clock.now(), context.host_metrics
    families.gauge("disk_free_bytes", "Free space of the attachments' file system.", machine.disk_free())
    families.gauge(
        "clock_offset_seconds",
        "Offset of this machine's clock from the shared clock.",
        context.clock.wall_ahead_ms / SECOND_MS,
    )
    expiry = families.declare("certificate_expiry_seconds", "Time until the SMTP submission certificate expires.")
    age = families.declare("backup_age_seconds", "Time since the last backup.")
    if (expires_at := machine.certificate_until()) is not None:
        expiry((expires_at - now) / SECOND_MS)
    if (backup_at := machine.backup_at()) is not None:
        age((now - backup_at) / SECOND_MS)


def _held_by_reason(context: Context, queues: Sequence[LaneDepth]) -> dict[str, int]:
    """Return reason → number of recipients that wait because delivery is paused, or all circuits of the lane are open.

    A circuit also counts as open between two probes.
    """
    setup, open_circuits = context.store.setup.current, context.store.circuits.current
    enabled = [carrier for carrier in setup.carriers if carrier.enabled]
    blocked_lanes = {LANE_BY_CHANNEL[carrier.channel] for carrier in enabled}
    blocked_lanes -= {LANE_BY_CHANNEL[carrier.channel] for carrier in enabled if carrier.id not in open_circuits}
    return {
        "paused": sum(lane.waiting for lane in queues) if setup.platform.paused else 0,
        "circuit": sum(lane.waiting for lane in queues if lane.lane in blocked_lanes),
    }


def _may_read_metrics(call: Call) -> bool:
    context, headers = call.context, call.request.headers
    expected = f"Bearer {context.metrics_token}".encode()
    if context.metrics_token and hmac.compare_digest(headers.get(b"authorization", b""), expected):
        return True
    # Behind an untrusted proxy, every client has the proxy's address.
    through_proxy = any(name in headers for name in FORWARDED_HEADERS)
    return not through_proxy and is_loopback_or_in(call.request.address, context.metrics_allow)
