"""A simulated latency passes before the body is read, so that it uses no memory."""

import msgspec
import pytest

from heliograph.accept.admission import Admission
from heliograph.accept.rate import RateLimits
from heliograph.api import app
from heliograph.compat.adapters import ADAPTERS
from heliograph.domain.sending.fault_injection import HEADER, InjectedFault, parse_fault
from heliograph.domain.setup.records import TeamRecord
from heliograph.storage.store import Store
from heliograph.web.budget import ByteBudget
from tests.api.test_own_writes import SANDBOX, key
from tests.clocks import TestClock
from tests.dashboard.inside import write_records
from tests.make_request import make_request
from tests.storage.test_idempotency import make_context, make_management

pytestmark = pytest.mark.anyio


async def test_simulated_latency_reserves_no_body_memory(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = TeamRecord(ref=2, id="team_s", name="S", mode="sandbox", rate_limit=0)
    await write_records(store, ("team", "team_s", record, "team_s"), key(SANDBOX, "team_s"))
    budget, context, held_bytes = ByteBudget(), make_context(store, clock), list[int]()
    api = app.Api(context, make_management(context), Admission(context, RateLimits()), budget, ADAPTERS)

    def read(header: str) -> InjectedFault:
        held_bytes.append(budget._total_usage.reserved)
        return parse_fault(header)

    monkeypatch.setattr(app, "parse_fault", read)
    headers = {"authorization": f"Bearer {SANDBOX}", "content-type": "application/json", HEADER.lower(): "latency=1ms"}
    body = {"to": "delivered@simulator.test", "subject": "S", "text": "T" * 200_000}
    answer = await api(make_request("POST", "/v1/emails", headers, msgspec.json.encode(body)))
    assert (answer.status, held_bytes) == (202, [0])
