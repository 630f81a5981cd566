"""Is the process alive, can it accept, and what has it done: for load balancers and Prometheus."""

import hmac
from typing import Annotated

import msgspec

from heliograph.api.route import Call, answer
from heliograph.rules.client_address import is_inside
from heliograph.rules.field_docs import says
from heliograph.rules.refusals import NotFound, ServiceUnavailable
from heliograph.web.request import Response

FORWARDED = (b"x-forwarded-for", b"forwarded")
PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"


class Health(msgspec.Struct, frozen=True):
    status: Annotated[str, says("Always `ok`.", fixed=True)] = "ok"


async def healthz(call: Call) -> Response:
    return answer(Health())


async def readyz(call: Call) -> Response:
    """503 before and while shutting down, or when the database does not commit within a second."""
    if call.context.state.leaving:
        raise ServiceUnavailable("Shutting down.", retry_after=1)
    await call.context.store.upkeep.can_commit.answer()
    return answer(Health())


async def metrics(call: Call) -> Response:
    """For loopback, the operator's ranges and anyone with the token; for others there is no such page."""
    if not _may_look(call):
        raise NotFound()
    process = call.context.process
    own = [] if process is None else [f'process="{process}"']
    lines = ["# TYPE heliograph_answers_total counter"]
    for (route, status), count in sorted(call.context.state.answers.items()):
        labels = ",".join([*own, f'route="{route}"', f'status="{status}"'])
        lines.append(f"heliograph_answers_total{{{labels}}} {count}")
    lines.append("# TYPE heliograph_event_loop_lag_seconds gauge")
    labels = "".join(f"{{{label}}}" for label in own)
    lines.append(f"heliograph_event_loop_lag_seconds{labels} {call.context.loop_lag():.6f}")
    lines.append("# TYPE heliograph_outbox_depth gauge")
    now = call.context.clock.now()
    waiting = await call.context.store.outbox.queue.answer()
    lines += [f'heliograph_outbox_depth{{lane="{one.lane}"}} {one.waiting}' for one in waiting]
    lines.append("# TYPE heliograph_outbox_oldest_seconds gauge")
    for one in waiting:
        lines.append(f'heliograph_outbox_oldest_seconds{{lane="{one.lane}"}} {max(0, now - one.due_at) / 1000}')
    lines.append("# TYPE heliograph_carrier_reachable gauge")
    circuits = call.context.store.circuits.current
    for carrier in call.context.store.setup.current.carriers:
        reachable = int(carrier.id not in circuits)
        lines.append(f'heliograph_carrier_reachable{{carrier="{carrier.id}",channel="{carrier.channel}"}} {reachable}')
    return Response(200, ("\n".join(lines) + "\n").encode(), content_type=PROMETHEUS)


def _may_look(call: Call) -> bool:
    context, headers = call.context, call.request.headers
    wanted = f"Bearer {context.metrics_token}".encode()
    if context.metrics_token and hmac.compare_digest(headers.get(b"authorization", b""), wanted):
        return True
    # Through a proxy that is not trusted, everybody seems to come from the proxy's address.
    through_stranger = any(name in headers for name in FORWARDED)
    return not through_stranger and is_inside(call.request.address, context.metrics_allow)
