"""/carriers/<id>/callback: where carriers report; the carrier itself checks who is asking."""

from heliograph.api.route import Call
from heliograph.channels.carrier import Callback
from heliograph.deliver.reports import take_callback
from heliograph.rules.limits import MIB
from heliograph.rules.refusals import NotFound
from heliograph.web.request import Response

CALLBACK_MAX = MIB  # Meta folds many statuses into one request


async def callback(call: Call) -> Response:
    """404 for an unknown carrier and for one without a secret alike."""
    store, request, carriers = call.context.store, call.request, call.context.handover.carriers
    for record in store.setup.current.carriers:
        if record.id == call.params["id"]:
            if (await carriers.get(record)).read_callback(_read(call)) is None:
                break  # it takes none, whatever the body, which stays unread
            body = await call.read() if call.read and request.method == "POST" else b""
            told = await take_callback(store, carriers, record, _read(call, body))
            if told is not None:
                return Response(told.status, told.body, content_type=told.content_type)
    raise NotFound(f"There is nothing at {request.path}. {NotFound.fix}")


def _read(call: Call, body: bytes = b"") -> Callback:
    request = call.request
    query = request.query_string.decode("latin-1")
    return Callback(
        method=request.method,
        url=call.context.base_url + request.path + ("?" + query if query else ""),
        query=request.loose_query(),
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()},
        body=body,
        now=call.context.clock.now(),
    )
