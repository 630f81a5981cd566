"""All calls of Postmark's that we take, and how its clients speak."""

from collections.abc import Awaitable, Callable
from typing import Any

from heliograph.compat.call import Call
from heliograph.compat.postmark import emails
from heliograph.compat.postmark.shape import PREFIX, error, token
from heliograph.rules.limits import BATCH_BODY_MAX
from heliograph.web.bodies import parse_json
from heliograph.web.request import Request, Response
from heliograph.web.route import Route
from heliograph.web.surface import Surface


def _routes(path: str, call: Callable[[Call], Awaitable[Response]]) -> list[Route]:
    """Its clients do not agree about the slash at the end."""
    common: dict[str, Any] = {"method": "POST", "summary": f"POST {path}", "scopes": ("send",), "body": Any}
    return [Route(path=PREFIX + path + end, call=call, body_max=BATCH_BODY_MAX, **common) for end in ("", "/")]


POSTMARK = Surface(
    prefix=PREFIX,
    routes=(
        *_routes("/email", emails.send),
        *_routes("/email/batch", emails.send_several),
        *_routes("/email/withTemplate", emails.send_with_template),
        *_routes("/email/batchWithTemplates", emails.send_several_with_templates),
    ),
    token=token,
    test_token=b"POSTMARK_API_TEST",
    check_media_type=Request.check_media_type,
    parse=parse_json,
    error=error,
)
