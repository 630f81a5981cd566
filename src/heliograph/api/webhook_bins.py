"""/bin/<team>/<token>: receives the events of a webhook bin; only the complete URL is valid."""

import hmac

import msgspec

from heliograph.api.call import Call
from heliograph.domain.limits import MIB, SECOND_MS
from heliograph.domain.refusals import NotFound
from heliograph.web.request import Response
from heliograph.webhooks.policy.bin import bin_url, receipt_report

EVENT_MAX = MIB  # events of inbound mail contain the mail's text


async def receive(call: Call) -> Response:
    context, team = call.context, call.context.store.setup.current.teams.get(call.params["team"])
    url = bin_url(context.base_url, call.params["team"], call.params["token"]).encode()
    hooks = [hook for hook in (team.webhooks if team else ()) if hmac.compare_digest(hook.url.encode(), url)]
    if not hooks or call.read_body is None:
        raise NotFound(f"Nothing is served at this address. {NotFound.fix}")
    body = await call.read_body()
    headers, secrets = call.request.decoded_headers(), call.management.webhooks.secrets_of(hooks[0])
    result = msgspec.json.encode(receipt_report(secrets, headers, body, context.clock.now() // SECOND_MS))
    return Response(200, msgspec.json.format(result, indent=2))  # indented for people
