"""POST /mcp: the Model Context Protocol over streamable HTTP, without sessions and with JSON responses.

A tool call runs a route of this API with the caller's key, including all checks of the route.
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
from heliograph.web.errors import JSON, error_headers, should_retry, to_error
from heliograph.web.read_budget import run_large
from heliograph.web.request import Request, Response
from heliograph.web.route import Route
from heliograph.web.status import status_of

PATH = "/mcp"
# protocol versions with streamable HTTP, in which the first request is `initialize`
PROTOCOL_VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25")
VERSION_HEADER = "MCP-Protocol-Version"
INITIALIZE = "initialize"
BATCH_VERSION = PROTOCOL_VERSIONS[0]  # the only version with batches; assumed if the header is missing
BATCH_MAX = 50  # maximum messages in a batch
INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32600, -32601, -32602  # error codes of JSON-RPC 2.0
NOT_ADMITTED = -32000  # a further request of a batch was refused; JSON-RPC leaves -32000 to -32099 to servers
INSTRUCTIONS = (
    "Sends email, SMS and WhatsApp messages within the limits of this API key. A refused call has `code`, `message` "
    "and `fix`; explain_error explains a code. Do not repeat a refused call unless `should_retry` is true."
)

# (call, route, request id for the log) → response of the route, run for the same caller
CallRoute = Callable[[Call, RouteCall, str], Awaitable[Response]]
# (call, request id for the log) → the call for a further request of the body, with the key's current settings
Readmit = Callable[[Call, str], Awaitable[Call]]


class JsonRpcError(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Mcp:
    """The MCP endpoint. `call_route` runs a route of the API. `call_route` and `readmit` raise refusals."""

    def __init__(self, call_route: CallRoute, readmit: Readmit, tools: dict[str, Tool]) -> None:
        self._call_route = call_route
        self._readmit = readmit
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
        version = _check_headers(call.request)
        if isinstance(call.json, list):
            return await self._respond_to_batch(call, call.json, version)
        message = _check_message(call.json)
        if not _is_request(message):
            return Response(202, b"")
        return Response(200, await self._response_to(call, message, call.request.id))

    async def _respond_to_batch(self, call: Call, messages: list[Any], version: str) -> Response:
        """Respond to the requests of a batch in order; each counts as a request."""
        if version != BATCH_VERSION:
            raise InvalidRequest(f"Protocol version {version} has no batches. Send one JSON-RPC message per request.")
        if not 1 <= len(messages) <= BATCH_MAX:
            error = JsonRpcError(INVALID_REQUEST, f"A batch has 1 to {BATCH_MAX} messages, got {len(messages)}.")
            return Response(400, _encode_error(None, error), error_headers(InvalidRequest(error.message)))
        responses, request_id = list[bytes](), call.request.id
        for item in messages:
            try:
                message = _check_message(item)
            except InvalidRequest as refusal:
                responses.append(_encode_error(None, JsonRpcError(INVALID_REQUEST, refusal.message)))
                continue
            if not _is_request(message):
                continue
            if message["method"] == INITIALIZE:
                error = JsonRpcError(INVALID_REQUEST, f"{INITIALIZE} must not be part of a batch.")
                responses.append(_encode_error(message["id"], error))
                continue
            try:
                if not request_id:  # not the first request
                    request_id = call.context.clock.new_id("req_")
                    call = await self._readmit(call, request_id)
                responses.append(await self._response_to(call, message, request_id))
            except Refusal as refusal:
                content = _refusal_content(refusal, request_id, call.context.base_url)
                responses.append(_encode_error(message["id"], JsonRpcError(NOT_ADMITTED, refusal.message, content)))
            request_id = ""
        return Response(200, b"[" + b",".join(responses) + b"]") if responses else Response(202, b"")

    async def _response_to(self, call: Call, message: dict[str, Any], request_id: str) -> bytes:
        """Return the encoded JSON-RPC response to a request."""
        id_, params = message["id"], message.get("params")
        try:
            if not isinstance(params, dict | None):
                raise JsonRpcError(INVALID_PARAMS, "params must be an object.")
            result = await self._result(call, message["method"], params or {}, request_id)
        except JsonRpcError as error:
            return _encode_error(id_, error)
        size = len(result) if isinstance(result, bytes) else 0
        return await run_large(size, _encode_result, id_, result)

    async def _result(self, call: Call, method: str, params: dict[str, Any], request_id: str) -> Any:
        """Return the result of a request; for a tool call, the encoded response of the tool's route."""
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
                return await self._call_tool(call, params, request_id)
        raise JsonRpcError(METHOD_NOT_FOUND, f"There is no method {quoted(method)}.")

    async def _call_tool(self, call: Call, params: dict[str, Any], request_id: str) -> Any:
        name, arguments = params.get("name"), params.get("arguments")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            known_names = ", ".join(self._tools)
            raise JsonRpcError(INVALID_PARAMS, f"There is no tool {quoted(str(name))}. Known: {known_names}.")
        if not isinstance(arguments, dict | None):
            raise JsonRpcError(INVALID_PARAMS, "arguments must be an object.")
        try:
            response = await self._call_route(call, tool.to_call(arguments or {}), request_id)
        except Refusal as refusal:
            return _tool_error(refusal, request_id, call.context.base_url)
        return response.body


def check_key(key: Key) -> None:
    """Refuse keys without restrictions, because an agent needs limits."""
    limits = key.restrictions
    if limits is None or (limits.recipients, limits.templates, limits.per_day, limits.approval) == (None,) * 4:
        raise RestrictedKeyRequired()


def _check_headers(request: Request) -> str:
    """Check the request's headers; return its protocol version."""
    accept = b",".join(request.values(b"accept")).lower()
    if accept and not any(media_type in accept for media_type in (JSON, b"application/*", b"*/*")):
        raise InvalidRequest("Responses are JSON. Send 'Accept: application/json, text/event-stream'.", param="Accept")
    version = request.headers.get(VERSION_HEADER.lower().encode(), BATCH_VERSION.encode()).decode("latin-1")
    if version not in PROTOCOL_VERSIONS:
        raise InvalidRequest(
            f"{VERSION_HEADER} {quoted(version)} is not supported. Use one of {', '.join(PROTOCOL_VERSIONS)}.",
            param=VERSION_HEADER,
        )
    return version


def _is_request(message: dict[str, Any]) -> bool:
    """Return whether a message needs a response, unlike notifications and responses."""
    return "method" in message and "id" in message


def _check_message(message: Any) -> dict[str, Any]:
    """Return the message if it is a valid JSON-RPC 2.0 request, notification or response; else raise a refusal."""
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
    """Return the server's part of the handshake. For an unknown protocol version it names the newest known one."""
    return {
        "protocolVersion": requested if requested in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[-1],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "heliograph", "title": "Heliograph", "version": __version__},
        "instructions": INSTRUCTIONS,
    }


def _tool_error(refusal: Refusal, request_id: str, base_url: str) -> dict[str, Any]:
    """Return a refusal as a tool's result."""
    content = _refusal_content(refusal, request_id, base_url)
    text = msgspec.json.encode(content).decode()
    return {"content": [{"type": "text", "text": text}], "structuredContent": content, "isError": True}


def _refusal_content(refusal: Refusal, request_id: str, base_url: str) -> dict[str, Any]:
    """Return the fields of the error, and how to fix it."""
    return {
        **msgspec.structs.asdict(to_error(refusal, request_id, base_url)),
        "fix": refusal.fix,
        "retry_after": refusal.retry_after,
        "should_retry": should_retry(status_of(type(refusal)), refusal.code),
    }


def _encode_result(id_: Any, result: Any) -> bytes:
    if isinstance(result, bytes):  # sent also as text: the protocol requires this, and some clients read only the text
        content = [{"type": "text", "text": result.decode()}]
        result = {"content": content, "structuredContent": msgspec.Raw(result), "isError": False}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id_, "result": result})


def _encode_error(id_: Any, error: JsonRpcError) -> bytes:
    fields = {"code": error.code, "message": error.message} | ({"data": error.data} if error.data else {})
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id_, "error": fields})
