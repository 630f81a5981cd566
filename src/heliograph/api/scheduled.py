"""Rescheduling and canceling of scheduled messages."""

from collections.abc import Awaitable, Callable

from heliograph.accept import scheduled
from heliograph.api.call import Call
from heliograph.domain.setup.records import Channel
from heliograph.web.bodies import to_request
from heliograph.web.request import Response
from heliograph.web.route import json_response


def reschedule(channel: Channel) -> Callable[[Call], Awaitable[Response]]:
    async def endpoint(call: Call) -> Response:
        request = to_request(call.json, scheduled.RescheduleRequest)
        return json_response(await scheduled.reschedule(call.context, call.caller, channel, call.params["id"], request))

    return endpoint


def cancel(channel: Channel) -> Callable[[Call], Awaitable[Response]]:
    async def endpoint(call: Call) -> Response:
        return json_response(await scheduled.cancel(call.context, call.caller, channel, call.params["id"]))

    return endpoint
