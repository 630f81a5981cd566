"""/carriers/<id>/callback: where carriers report; the carrier itself checks who is asking."""

from heliograph.api.request import Response
from heliograph.api.route import Call
from heliograph.channels.carrier import Callback
from heliograph.deliver.reports import take_callback
from heliograph.rules.limits import MIB
from heliograph.rules.refusals import NotFound

CALLBACK_MAX = MIB  # Meta folds many statuses into one request


async def callback(call: Call) -> Response:
    """404 for an unknown carrier and for one without a secret alike."""
    store, request = call.desk.store, call.request
    for record in store.setup.carriers:
        if record.id == call.params["id"]:
            told = await take_callback(store, call.desk.circuits.carriers, record, _read(call))
            if told is not None:
                return Response(told.status, told.body, content_type=told.content_type)
    raise NotFound(f"There is nothing at {request.path}. {NotFound.fix}")


def _read(call: Call) -> Callback:
    request = call.request
    query = request.query_string.decode("latin-1")
    return Callback(
        method=request.method,
        url=call.desk.base_url + request.path + ("?" + query if query else ""),
        query=request.loose_query(),
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()},
        body=call.raw,
        now=call.desk.clock.now(),
    )
