"""Endpoints that read and advance a team's test clock (contract 19)."""

import asyncio
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from heliograph.api.call import Call
from heliograph.domain.field_docs import TIME, ObjectName, describe
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.operations.team_clock import ADVANCE_MAX_S, require_test_clock
from heliograph.manage import team_clock
from heliograph.web.bodies import to_request
from heliograph.web.request import Response
from heliograph.web.route import json_response

SETTLE_S = 30.0  # maximum wait until the work that becomes due is done
POLL_S = 0.01  # interval of checks whether the work is done
PROPAGATION_S = 0.3  # time until all other processes have read the new clock offset


class AdvanceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    advance_s: Annotated[
        int, describe("Seconds to advance; at most 60 days in total.", minimum=1, maximum=ADVANCE_MAX_S, example=432000)
    ]


class TestClockRecord(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "test_clock"
    now: Annotated[str, describe("The team's time.", **TIME)]
    offset_s: Annotated[int, describe("Seconds ahead of real time.", minimum=0, maximum=ADVANCE_MAX_S)]
    settled: Annotated[
        bool | UnsetType,
        describe("`false` if work that became due is still in progress; absent when everything is done."),
    ] = UNSET


async def read(call: Call) -> Response:
    return json_response(_record(call))


async def advance(call: Call) -> Response:
    request, store = to_request(call.json, AdvanceRequest), call.context.store
    await team_clock.advance(store, call.actor, call.caller.team, request.advance_s)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_S
    while _record(call).settled is False and loop.time() < deadline:
        await asyncio.sleep(POLL_S)
    if call.context.process is not None:
        await asyncio.sleep(PROPAGATION_S)
    return json_response(_record(call))


def _record(call: Call) -> TestClockRecord:
    team = call.context.store.setup.current.teams[call.team_id]
    clock = require_test_clock(team)
    return TestClockRecord(
        now=timestamp(call.context.clock.team_now(team.record.ref)),
        offset_s=clock.ahead // SECOND_MS,
        settled=UNSET if clock.ahead == clock.target else False,
    )
