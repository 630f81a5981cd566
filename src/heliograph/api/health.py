"""Liveness, readiness and metrics endpoints, for load balancers and Prometheus."""

import asyncio
import hmac
from collections.abc import Mapping, Sequence
from math import inf
from typing import Annotated

import msgspec

from heliograph.accept.context import Context
from heliograph.api.call import Call
from heliograph.domain.delivery.callbacks import calls_back
from heliograph.domain.delivery.lanes import LANE
from heliograph.domain.field_docs import says
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.network.client_address import is_inside
from heliograph.domain.operations.instance_name import name_of_instance
from heliograph.domain.refusals import NotFound, ServiceUnavailable
from heliograph.runtime.metrics import TYPE, Families, flush
from heliograph.runtime.metrics import written as metrics_text
from heliograph.runtime.threads import LOOKING
from heliograph.storage.dead_letters import Behind
from heliograph.storage.outbox import LaneDepth
from heliograph.web.request import Response
from heliograph.web.route import answer

FORWARDED = (b"x-forwarded-for", b"forwarded")
INSTANCE = b"heliograph-instance"


class Health(msgspec.Struct, frozen=True):
    status: Annotated[str, says("Always `ok`.", fixed=True)] = "ok"


ALIVE = msgspec.json.encode(Health())


async def healthz(call: Call) -> Response:
    """Return 200 with the instance name, by which local commands recognize another instance's service."""
    whose = call.context.store.owner.partition("/")[0]
    return Response(200, ALIVE, [(INSTANCE, name_of_instance(whose).encode())])


async def readyz(call: Call) -> Response:
    """Return 503 before and during shutdown, if the database does not commit within a second,
    or if this is a worker that claims nothing because its clock is wrong.
    """
    await _check_ready(call.context)
    return answer(Health())


async def _check_ready(context: Context) -> None:
    if context.state.leaving:
        raise ServiceUnavailable("Shutting down.", retry_after=1)
    if context.is_worker and context.clock.off():
        raise ServiceUnavailable("This machine's clock is wrong: nothing is claimed.", retry_after=1)
    await context.store.upkeep.can_commit.answer()


async def metrics(call: Call) -> Response:
    """Return the metrics to clients on loopback, in the operator's IP ranges
    or with the token; 404 to others.
    """
    if not _may_look(call):
        raise NotFound()
    state = call.context.state
    if state.measuring is None or state.measuring.done():
        state.measuring = asyncio.ensure_future(_measured(call.context))
    return Response(200, await asyncio.shield(state.measuring), content_type=TYPE)


async def _measured(context: Context) -> bytes:
    """Render the metrics in a thread; concurrent requests share the result."""
    asked = await _asked(context)
    flush()
    return await LOOKING.run(metrics_text, asked)


async def _asked(context: Context) -> Families:
    """Return gauges measured now from the database and the machine. A failed query omits only its own gauges."""
    found, probes = Families(), context.store
    ready, waiting, behind, heard = await asyncio.gather(
        _check_ready(context),
        probes.outbox.queue.answer(),
        probes.dead_letters.behind.answer(),
        probes.carrier_use.last_callbacks.answer(),
        return_exceptions=True,
    )
    found.gauge("build_info", "Always 1.", 1, **context.about)
    found.gauge("ready", "Whether /readyz says so.", not isinstance(ready, BaseException))
    _tell_queues(found, context, [] if isinstance(waiting, BaseException) else waiting)
    _tell_behind(found, context.clock.now(), None if isinstance(behind, BaseException) else behind)
    _tell_callbacks(found, context, None if isinstance(heard, BaseException) else heard)
    _tell_machine(found, context)
    return found


def _tell_queues(found: Families, context: Context, waiting: Sequence[LaneDepth]) -> None:
    """Add queue gauges. `waiting` is empty if the database is unavailable: no value is reported, as 0 would mislead."""
    depth = found.declare("outbox_depth", "Recipients that wait or are in work.", "lane")
    oldest = found.declare("outbox_oldest_seconds", "How long the oldest of them has waited.", "lane")
    held = found.declare("held_messages", "Recipients that wait for somebody to mend it.", "reason")
    for one in waiting:
        depth(one.waiting, one.lane)
        since = context.clock.now() if one.since is None else one.since
        oldest(max(0, context.clock.now() - since) / SECOND_MS, one.lane)  # negative if scheduled for later
    for reason, many in (_held(context, waiting) if waiting else {}).items():
        held(many, reason)
    for carrier in context.store.setup.current.carriers:
        labels = {"carrier": carrier.id, "channel": carrier.channel}
        reachable = carrier.id not in context.store.circuits.current
        found.gauge("carrier_reachable", "0 while its circuit is open.", reachable, **labels)


def _tell_behind(found: Families, now: int, behind: Behind | None) -> None:
    dead = found.declare("quarantined_messages", "Dead letters.")
    pending = found.declare("webhook_pending", "Events that wait for their webhooks.")
    lag = found.declare("webhook_lag_seconds", "Since the first try of the oldest of them, or since it happened.")
    if behind:
        dead(behind.dead)
        pending(sum(hook.waiting for hook in behind.hooks))
        lag(max((now - hook.since for hook in behind.hooks), default=0) / SECOND_MS)


def _tell_callbacks(found: Families, context: Context, heard: Mapping[str, int] | None) -> None:
    since = found.declare(
        "carrier_last_callback_seconds", "Since its last callback that was verified.", "carrier", "channel"
    )
    if heard is None:
        return
    for carrier in context.store.setup.current.carriers:
        if carrier.id in heard:
            since(max(0, context.clock.now() - heard[carrier.id]) / SECOND_MS, carrier.id, carrier.channel)
        elif calls_back(carrier):
            since(inf, carrier.id, carrier.channel)


def _tell_machine(found: Families, context: Context) -> None:
    now, machine = context.clock.now(), context.machine
    found.gauge("disk_free_bytes", "Where attachments are.", machine.disk_free())
    found.gauge("clock_offset_seconds", "How far it is ahead of the shared clock.", context.clock.apart / SECOND_MS)
    expiry = found.declare("certificate_expiry_seconds", "Until the certificate of SMTP submission ends.")
    age = found.declare("backup_age_seconds", "Since the last backup.")
    if (until := machine.certificate_until()) is not None:
        expiry((until - now) / SECOND_MS)
    if (at := machine.backup_at()) is not None:
        age((now - at) / SECOND_MS)


def _held(context: Context, waiting: Sequence[LaneDepth]) -> dict[str, int]:
    """Count waiting recipients by reason: delivery is paused, or all carriers of their channel have open circuits.

    A circuit also counts as open between two probes.
    """
    setup, closed = context.store.setup.current, context.store.circuits.current
    enabled = [carrier for carrier in setup.carriers if carrier.enabled]
    cut_off = {LANE[carrier.channel] for carrier in enabled}
    cut_off -= {LANE[carrier.channel] for carrier in enabled if carrier.id not in closed}
    return {
        "paused": sum(one.waiting for one in waiting) if setup.platform.paused else 0,
        "circuit": sum(one.waiting for one in waiting if one.lane in cut_off),
    }


def _may_look(call: Call) -> bool:
    context, headers = call.context, call.request.headers
    wanted = f"Bearer {context.metrics_token}".encode()
    if context.metrics_token and hmac.compare_digest(headers.get(b"authorization", b""), wanted):
        return True
    # Behind an untrusted proxy, every client appears to have the proxy's address.
    through_stranger = any(name in headers for name in FORWARDED)
    return not through_stranger and is_inside(call.request.address, context.metrics_allow)
