"""The route table and the adapter of the compatibility API for Twilio."""

from collections.abc import Awaitable, Callable

from heliograph.compat.call import Call
from heliograph.compat.twilio import messages, verify
from heliograph.compat.twilio.codec import PREFIX, VERSION, check_media_type, error, parse, token, unsupported_reason
from heliograph.domain.setup.key_restrictions import Action
from heliograph.web.adapter import ApiAdapter
from heliograph.web.request import Response
from heliograph.web.route import Route


def _route(operation: str, call: Callable[[Call], Awaitable[Response]], action: Action = "") -> Route:
    method, path = operation.split()
    body = dict if method == "POST" else None
    return Route(
        method=method, path=PREFIX + path, call=call, summary=operation, scopes=("send",), action=action, body=body
    )


_MESSAGES = f"/{VERSION}/Accounts/{{account}}/Messages"
ROUTES = (
    _route("POST /v2/Services", verify.create_service),
    _route("GET /v2/Services/{service}", verify.read_service),
    _route("POST /v2/Services/{service}/Verifications", verify.start, "verify"),
    _route("GET /v2/Services/{service}/Verifications/{sid}", verify.read),
    _route("POST /v2/Services/{service}/Verifications/{sid}", verify.update),
    _route("POST /v2/Services/{service}/VerificationCheck", verify.check),
    _route(f"POST {_MESSAGES}.json", messages.send),
    _route(f"GET {_MESSAGES}.json", messages.list_all),
    _route(f"GET {_MESSAGES}/{{sid}}", messages.read),
    _route(f"POST {_MESSAGES}/{{sid}}", messages.update),
    _route(f"DELETE {_MESSAGES}/{{sid}}", messages.delete),
)

TWILIO = ApiAdapter(
    prefix=PREFIX,
    routes=ROUTES,
    read_token=token,
    check_media_type=check_media_type,
    parse_body=parse,
    error_response=error,
    unsupported_reason=unsupported_reason,
)
