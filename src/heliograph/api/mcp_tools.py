"""The tools of the MCP endpoint (contract 20). Each calls a route of the API, and has the route's field names."""

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from heliograph.api.call import Call
from heliograph.api.json_schema import make_schemas, with_defs
from heliograph.domain.field_docs import Schema
from heliograph.domain.ids import PREFIXES
from heliograph.domain.limits import IDEMPOTENCY_KEY_MAX
from heliograph.domain.refusals import InvalidRequest, MessageNotFound
from heliograph.domain.setup.records import CHANNELS
from heliograph.domain.text import quoted
from heliograph.texts.explain import all_causes
from heliograph.web.errors import error_list
from heliograph.web.request import Response
from heliograph.web.route import Route, json_response

DRY_RUN, IDEMPOTENCY_KEY = "dry_run", "idempotency_key"
SEND_OPTIONS: dict[str, Schema] = {
    DRY_RUN: {
        "type": "boolean",
        "description": "`true`: return what would be sent and its price, without sending or storing anything.",
    },
    IDEMPOTENCY_KEY: {
        "type": "string",
        "minLength": 1,
        "maxLength": IDEMPOTENCY_KEY_MAX,
        "description": "Makes a retry safe: for 24 hours, a call with the same key and arguments returns the first "
        "result and sends nothing again.",
    },
}
SEND_HINT = (
    "Restricted to what this key permits; a refusal names the limit. Use dry_run first if unsure. "
    "In tests, delivered@simulator.test and +15005550006 are simulated and reach nobody."
)
LIST_PATHS = {"email": "/v1/emails", "sms": "/v1/sms", "whatsapp": "/v1/whatsapp"}


class RouteCall(msgspec.Struct, frozen=True, kw_only=True):
    route: Route
    params: dict[str, str] = {}
    query: dict[str, str] = {}
    body: Any = None
    idempotency_key: str | None = None

    @property
    def path(self) -> str:
        path = self.route.path
        for name, value in self.params.items():
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        return path

    @property
    def query_string(self) -> bytes:
        return urlencode(self.query).encode()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        key = self.idempotency_key
        return [] if key is None else [(b"idempotency-key", key.encode())]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    description: str
    input_schema: Schema
    to_call: Callable[[dict[str, Any]], RouteCall]  # arguments → call; raises a Refusal if they are invalid
    sends: bool = False

    def definition(self) -> dict[str, Any]:
        """Return the tool's entry in tools/list."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "annotations": {"readOnlyHint": not self.sends, "destructiveHint": False, "openWorldHint": self.sends},
        }


def make_tools(routes: Iterable[Route]) -> dict[str, Tool]:
    """Return name → tool. `routes`: all routes of the API."""
    by_name = {route.name: route for route in routes}
    tools = (
        _send_tool(
            "send_email", "Send an email", "Send an email, direct or from a template.", by_name["POST /v1/emails"]
        ),
        _send_tool("send_sms", "Send an SMS", "Send an SMS from a template.", by_name["POST /v1/sms"]),
        _send_tool(
            "send_whatsapp",
            "Send a WhatsApp message",
            "Send a WhatsApp message from a template.",
            by_name["POST /v1/whatsapp"],
        ),
        _get_message({PREFIXES[channel]: by_name[f"GET {path}/{{id}}"] for channel, path in LIST_PATHS.items()}),
        _find_messages({channel: by_name[f"GET {path}"] for channel, path in LIST_PATHS.items()}),
        _query_tool(
            "list_templates",
            "List templates",
            "List the team's templates with their variables, prices and drafts. Needs a key with the scope manage.",
            by_name["GET /v1/templates"],
        ),
        _render_template(by_name["POST /v1/templates/{id}/render"]),
        _query_tool(
            "list_inbox",
            "List the test inbox",
            "List what simulators delivered for a sandbox team, newest first, with the code and links in each message. "
            "With `wait`, waits for the next message.",
            by_name["GET /v1/inbox"],
        ),
        _explain_error(),
    )
    return {tool.name: tool for tool in tools}


# -- tools ---------------------------------------------------------------------------------------------------------


def _send_tool(name: str, title: str, description: str, route: Route) -> Tool:
    def to_call(arguments: dict[str, Any]) -> RouteCall:
        body = {field: value for field, value in arguments.items() if field not in SEND_OPTIONS}
        dry_run, key = arguments.get(DRY_RUN), arguments.get(IDEMPOTENCY_KEY)
        if not isinstance(dry_run, bool | None):
            raise InvalidRequest("dry_run must be true or false.", param=DRY_RUN)
        if not isinstance(key, str | None):
            raise InvalidRequest("idempotency_key must be a string.", param=IDEMPOTENCY_KEY)
        return RouteCall(route=route, body=body, query={DRY_RUN: "true"} if dry_run else {}, idempotency_key=key)

    return Tool(
        name=name,
        title=title,
        description=f"{description} {SEND_HINT}",
        input_schema=_body_schema(route, SEND_OPTIONS),
        to_call=to_call,
        sends=True,
    )


def _get_message(routes: dict[str, Route]) -> Tool:
    def to_call(arguments: dict[str, Any]) -> RouteCall:
        id_ = _take_text(arguments, "id")
        _refuse_others(arguments, ("id",))
        route = routes.get(id_[:4])
        if route is None:
            raise MessageNotFound(f"No message {quoted(id_)}. {MessageNotFound.fix}", param="id")
        return RouteCall(route=route, params={"id": id_})

    return Tool(
        name="get_message",
        title="Get a message",
        description="Get a sent message with its status, recipients, timeline, and an explanation of each failure.",
        input_schema=_object_schema(
            {"id": {"type": "string", "description": f"Id of the message: {', '.join(f'{id_}…' for id_ in routes)}."}},
            required=["id"],
        ),
        to_call=to_call,
    )


def _find_messages(routes: dict[str, Route]) -> Tool:
    def to_call(arguments: dict[str, Any]) -> RouteCall:
        channel = arguments.get("channel")
        if channel is None:
            channel = "email"
        if channel not in CHANNELS:
            raise InvalidRequest(f"channel must be one of {', '.join(CHANNELS)}.", param="channel")
        return _query_call(routes[channel], {name: value for name, value in arguments.items() if name != "channel"})

    channel: Schema = {
        "type": "string",
        "enum": list(CHANNELS),
        "default": "email",
        "description": "Channel of the messages.",
    }
    properties = {"channel": channel} | _query_properties(routes["email"])
    for name in ("status", "after"):  # the allowed values depend on the channel
        properties[name] = {"type": "string", "description": properties[name]["description"]}
    return Tool(
        name="find_messages",
        title="Find messages",
        description="List sent messages of a channel, newest first, by recipient, status, template, tag or time.",
        input_schema=_object_schema(properties),
        to_call=to_call,
    )


def _render_template(route: Route) -> Tool:
    def to_call(arguments: dict[str, Any]) -> RouteCall:
        body = {name: value for name, value in arguments.items() if name != "id"}
        return RouteCall(route=route, params={"id": _take_text(arguments, "id")}, body=body)

    return Tool(
        name="render_template",
        title="Render a template",
        description="Render an approved template without sending it: subject, bodies, price, and variables that are "
        "missing or unknown.",
        input_schema=_body_schema(
            route, {"id": {"type": "string", "description": "Id of the template, beginning with `tpl_`."}}, ["id"]
        ),
        to_call=to_call,
    )


def _explain_error() -> Tool:
    errors = {entry["code"]: entry for entry in error_list()}
    causes = {cause.cause: cause for cause in all_causes()}

    async def explain(call: Call) -> Response:
        code = call.params["code"]
        if code in errors:
            return json_response(errors[code] | {"doc_url": f"{call.context.base_url}/docs/errors#{code}"})
        if code in causes:
            return json_response(causes[code])
        raise InvalidRequest(
            f"There is no error code or failure cause {quoted(code)}. Use the `code` of a refusal, or the `cause` in a "
            "message's explanation.",
            param="code",
        )

    route = Route(method="GET", path="/v1/errors", call=explain, summary="Explain an error code")

    def to_call(arguments: dict[str, Any]) -> RouteCall:
        code = _take_text(arguments, "code")
        _refuse_others(arguments, ("code",))
        return RouteCall(route=route, params={"code": code})

    return Tool(
        name="explain_error",
        title="Explain an error",
        description="Explain an error code of a refused call, or the cause of a failed message, and how to fix it.",
        input_schema=_object_schema(
            {
                "code": {
                    "type": "string",
                    "description": "Error code such as `recipient_not_permitted`, or cause such as `mailbox_full`.",
                }
            },
            required=["code"],
        ),
        to_call=to_call,
    )


def _query_tool(name: str, title: str, description: str, route: Route) -> Tool:
    return Tool(
        name=name,
        title=title,
        description=description,
        input_schema=_object_schema(_query_properties(route)),
        to_call=lambda arguments: _query_call(route, arguments),
    )


# -- schemas and arguments -----------------------------------------------------------------------------------------


def _object_schema(properties: dict[str, Schema], required: Iterable[str] = ()) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _body_schema(route: Route, additions: dict[str, Schema], required: Iterable[str] = ()) -> Schema:
    """Return the schema of a route's request body, with additional arguments of the tool."""
    components = make_schemas({route.body}, is_response=False)
    body = components[route.body.__name__]
    schema = _object_schema(body["properties"] | additions, [*required, *body["required"]])
    return with_defs(schema, components)


def _query_properties(route: Route) -> dict[str, Schema]:
    return {query.name: {**query.schema, "description": query.meaning} for query in route.query}


def _query_call(route: Route, arguments: dict[str, Any]) -> RouteCall:
    query = {}
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, str | int):
            raise InvalidRequest(f"{name[:80]} must be a string or a whole number.", param=name[:80])
        query[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return RouteCall(route=route, query=query)


def _take_text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{name} must be a string that is not empty.", param=name)
    return value


def _refuse_others(arguments: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in arguments:
        if name not in known:
            raise InvalidRequest(f"There is no argument {quoted(name)}. Known: {', '.join(known)}.", param=name[:80])
