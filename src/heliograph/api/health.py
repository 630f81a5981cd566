"""Is the process alive, can it accept, and what has it done: for load balancers and Prometheus."""

import msgspec

from heliograph.api.request import Response
from heliograph.api.route import Call, answer
from heliograph.rules.refusals import ServiceUnavailable

PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"


class Health(msgspec.Struct, frozen=True):
    status: str = "ok"


async def healthz(call: Call) -> Response:
    return answer(Health())


async def readyz(call: Call) -> Response:
    """503 while shutting down, or when the database cannot be read."""
    if call.desk.state.draining:
        raise ServiceUnavailable("Shutting down.", retry_after=1)
    await call.desk.store.ping()
    return answer(Health())


async def metrics(call: Call) -> Response:
    lines = ["# TYPE heliograph_answers_total counter"]
    for (route, status), count in sorted(call.desk.state.answers.items()):
        lines.append(f'heliograph_answers_total{{route="{route}",status="{status}"}} {count}')
    lines.append("# TYPE heliograph_outbox_depth gauge")
    now = call.desk.clock.now()
    waiting = await call.desk.store.depth()
    lines += [f'heliograph_outbox_depth{{lane="{lane}"}} {depth}' for lane, depth, _ in waiting]
    lines.append("# TYPE heliograph_outbox_oldest_seconds gauge")
    for lane, _, due_at in waiting:
        lines.append(f'heliograph_outbox_oldest_seconds{{lane="{lane}"}} {max(0, now - due_at) / 1000}')
    lines.append("# TYPE heliograph_carrier_reachable gauge")
    circuits = call.desk.store.setup.circuits
    for carrier in call.desk.store.setup.carriers:
        reachable = int(carrier.id not in circuits)
        lines.append(f'heliograph_carrier_reachable{{carrier="{carrier.id}",channel="{carrier.channel}"}} {reachable}')
    return Response(200, ("\n".join(lines) + "\n").encode(), content_type=PROMETHEUS)
