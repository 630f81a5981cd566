"""POST /mcp: the Model Context Protocol over streamable HTTP, without sessions and with JSON responses.

A tool call runs a route of the API in this process, with the caller's key and all checks of that route.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from heliograph import __version__
from heliograph.api.call import Call
from heliograph.api.mcp_tools import RouteCall, Tool
from heliograph.domain.limits import EMAIL_BODY_MAX
from heliograph.domain.refusals import InvalidRequest, Refusal, RestrictedKeyRequired
from heliograph.domain.setup.records import Key
from heliograph.domain.text import quoted
from heliograph.web.errors import JSON, should_retry, to_error
from heliograph.web.read_budget import run_large
from heliograph.web.request import Request, Response
from heliograph.web.route import Route, json_response
from heliograph.web.status import status_of

PATH = "/mcp"
# Protocol versions with streamable HTTP that begin with `initialize`.
PROTOCOL_VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25")
VERSION_HEADER = "MCP-Protocol-Version"
METHOD_NOT_FOUND, INVALID_PARAMS = -32601, -32602  # JSON-RPC 2.0
INSTRUCTIONS = (
    "Sends email, SMS and WhatsApp messages within the limits of this API key. A refused call has `code`, `message` "
    "and `fix`; explain_error explains a code. Do not repeat a refused call unless `should_retry` is true."
)

CallRoute = Callable[[Call, RouteCall], Awaitable[Response]]  # runs a route for the caller of the first argument


class JsonRpcError(Exception):
    """A JSON-RPC error response."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Mcp:
    """The MCP endpoint. `call_route` runs a route of the API and raises its refusals."""

    def __init__(self, call_route: CallRoute, tools: dict[str, Tool]) -> None:
        self._call_route = call_route
        self._tools = tools
        self._definitions = [tool.definition() for tool in tools.values()]

    def route(self) -> Route:
        return Route(
            method="POST",
            path=PATH,
            call=self.respond,
            summary="Call a tool by the Model Context Protocol",
            scopes=("send", "manage"),
            body=dict,
            body_max=EMAIL_BODY_MAX,
            check_key=check_key,
            logs_inner_calls=True,
        )

    async def respond(self, call: Call) -> Response:
        _check_headers(call.request)
        message = _check_message(call.json)
        if "method" not in message or "id" not in message:  # a notification or a response: nothing to respond
            return Response(202, b"")
        id_, params = message["id"], message.get("params")
        try:
            if not isinstance(params, dict | None):
                raise JsonRpcError(INVALID_PARAMS, "params must be an object.")
            result = await self._result(call, message["method"], params or {})
        except JsonRpcError as error:
            fault = {"code": error.code, "message": error.message}
            return json_response({"jsonrpc": "2.0", "id": id_, "error": fault})
        size = len(result) if isinstance(result, bytes) else 0
        return await run_large(size, _result_response, id_, result)

    async def _result(self, call: Call, method: str, params: dict[str, Any]) -> Any:
        """Return the result of a request; bytes are the response body of a tool."""
        match method:
            case "initialize":
                return _initialize_result(params.get("protocolVersion"))
            case "ping":
                return {}
            case "tools/list":
                if params.get("cursor") is not None:
                    raise JsonRpcError(INVALID_PARAMS, "There is no such cursor: all tools are on the first page.")
                return {"tools": self._definitions}
            case "tools/call":
                return await self._call_tool(call, params)
        raise JsonRpcError(METHOD_NOT_FOUND, f"There is no method {quoted(method)}.")

    async def _call_tool(self, call: Call, params: dict[str, Any]) -> Any:
        name, arguments = params.get("name"), params.get("arguments")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            known = ", ".join(self._tools)
            raise JsonRpcError(INVALID_PARAMS, f"There is no tool {quoted(str(name))}. Known: {known}.")
        if not isinstance(arguments, dict | None):
            raise JsonRpcError(INVALID_PARAMS, "arguments must be an object.")
        try:
            response = await self._call_route(call, tool.to_call(arguments or {}))
        except Refusal as refusal:
            return _tool_error(refusal, call.request.id, call.context.base_url)
        return response.body


def check_key(key: Key) -> None:
    """Refuse keys without a restriction that limits what an agent can do."""
    limits = key.restrictions
    if limits is None or (limits.recipients, limits.templates, limits.per_day, limits.approval) == (None,) * 4:
        raise RestrictedKeyRequired()


def _check_headers(request: Request) -> None:
    accept = b",".join(request.values(b"accept")).lower()
    if accept and not any(media_type in accept for media_type in (JSON, b"application/*", b"*/*")):
        raise InvalidRequest("Responses are JSON. Send 'Accept: application/json, text/event-stream'.", param="Accept")
    version = request.headers.get(VERSION_HEADER.lower().encode(), b"2025-03-26").decode("latin-1")
    if version not in PROTOCOL_VERSIONS:
        raise InvalidRequest(
            f"{VERSION_HEADER} {quoted(version)} is not supported. Use one of {', '.join(PROTOCOL_VERSIONS)}.",
            param=VERSION_HEADER,
        )


def _check_message(message: Any) -> dict[str, Any]:
    """Return the message; refuse everything that is not one JSON-RPC 2.0 request, notification or response."""
    if isinstance(message, list):
        raise InvalidRequest("Send one JSON-RPC message per request, not a batch.")
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise InvalidRequest('Send a JSON-RPC message: an object with "jsonrpc": "2.0".', param="jsonrpc")
    if "method" in message and not isinstance(message["method"], str):
        raise InvalidRequest("method must be a string.", param="method")
    if "method" not in message and not {"result", "error"} & message.keys():
        raise InvalidRequest("Name the method to call.", param="method")
    id_ = message.get("id", "")
    if isinstance(id_, bool) or not isinstance(id_, str | int | float):
        raise InvalidRequest("id must be a string or a number.", param="id")
    return message


def _initialize_result(requested: Any) -> dict[str, Any]:
    """Return the server's side of the handshake. An unknown version is answered with the newest known one."""
    return {
        "protocolVersion": requested if requested in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[-1],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "heliograph", "title": "Heliograph", "version": __version__},
        "instructions": INSTRUCTIONS,
    }


def _tool_error(refusal: Refusal, request_id: str, base_url: str) -> dict[str, Any]:
    """Return a refusal as the result of a tool: the error's fields and how to fix it."""
    error = to_error(refusal, request_id, base_url)
    content = {
        **msgspec.structs.asdict(error),
        "fix": refusal.fix,
        "retry_after": refusal.retry_after,
        "should_retry": should_retry(status_of(type(refusal)), refusal.code),
    }
    text = msgspec.json.encode(content).decode()
    return {"content": [{"type": "text", "text": text}], "structuredContent": content, "isError": True}


def _result_response(id_: Any, result: Any) -> Response:
    if isinstance(result, bytes):  # also as text, as the protocol requires: some clients read text only
        content = [{"type": "text", "text": result.decode()}]
        result = {"content": content, "structuredContent": msgspec.Raw(result), "isError": False}
    return json_response({"jsonrpc": "2.0", "id": id_, "result": result})
