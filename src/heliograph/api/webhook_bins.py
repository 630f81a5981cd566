"""/bin/<team>/<token>: receives the events of a webhook bin, which is found only by its complete URL."""

import hmac

import msgspec

from heliograph.api.call import Call
from heliograph.domain.limits import MIB, SECOND_MS
from heliograph.domain.refusals import NotFound
from heliograph.web.request import Response
from heliograph.webhooks.policy.bin import address, seen

EVENT_MAX = MIB  # events of inbound mail include its text


async def receive(call: Call) -> Response:
    context, team = call.context, call.context.store.setup.current.teams.get(call.params["team"])
    url = address(context.base_url, call.params["team"], call.params["token"]).encode()
    hooks = [hook for hook in (team.webhooks if team else ()) if hmac.compare_digest(hook.url.encode(), url)]
    if not hooks or call.read is None:
        raise NotFound(f"There is nothing at this address. {NotFound.fix}")
    body = await call.read()
    given = {name.decode("latin-1"): value.decode("latin-1") for name, value in call.request.headers.items()}
    secrets = call.management.webhooks.secrets_of(hooks[0])
    said = msgspec.json.encode(seen(secrets, given, body, context.clock.now() // SECOND_MS))
    return Response(200, msgspec.json.format(said, indent=2))  # indented for human readers
