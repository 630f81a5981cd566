"""POST /mcp (contract 20): the Model Context Protocol for keys with restrictions."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.api.sends import EMAIL, SMS, WELCOME, assert_refused
from tests.api.test_key_restrictions import restricted
from tests.service import Answer, Service, until

ALLOWED: dict[str, Any] = {"recipients": ["*@simulator.test", "+15005550006"]}
TOOLS = {
    *("send_email", "send_sms", "send_whatsapp", "get_message", "find_messages", "list_templates"),
    *("render_template", "list_inbox", "explain_error"),
}
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("mcp")
    with Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data", mcp="on") as running:
        running.apply()
        running.start()
        yield running


@pytest.fixture(scope="module")
def agent(service: Service) -> str:
    return restricted(service, scopes=("send", "manage"), **ALLOWED)


def ask(service: Service, key: str | None, method: str, params: Any = None, **headers: str) -> Answer:
    message = {"jsonrpc": "2.0", "id": 7, "method": method} | ({} if params is None else {"params": params})
    return service.post("/mcp", message, key=key, headers={name.replace("_", "-"): v for name, v in headers.items()})


def request(service: Service, key: str, method: str, params: Any = None) -> Any:
    answer = ask(service, key, method, params)
    assert (answer.status, answer.json["id"]) == (200, 7), answer.raw
    return answer.json["result"]


def call(service: Service, key: str, tool: str, **arguments: Any) -> Any:
    """Return the structured content of a successful tool call."""
    result = request(service, key, "tools/call", {"name": tool, "arguments": arguments})
    assert result["isError"] is False, result
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return result["structuredContent"]


def refuse(service: Service, key: str, tool: str, **arguments: Any) -> Any:
    """Return the structured content of a tool error."""
    result = request(service, key, "tools/call", {"name": tool, "arguments": arguments})
    assert result["isError"] is True, result
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert result["structuredContent"]["fix"]
    return result["structuredContent"]


def logged(service: Service, columns: str) -> list[Any]:
    """Return the entries of the request log."""
    with closing(sqlite3.connect(service.database.removeprefix("sqlite:///"))) as connection:
        return connection.execute(f"SELECT {columns} FROM request_log").fetchall()


# -- who may use it ------------------------------------------------------------------------------------------------


def test_mcp_is_off_by_default(shared_service: Service) -> None:
    assert_refused(ask(shared_service, "ACME", "ping"), 404, "not_found")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_only_post_is_allowed(service: Service, agent: str, method: str) -> None:
    answer = service.ask(method, "/mcp", key=agent)
    assert_refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


def test_a_key_is_needed(service: Service) -> None:
    assert_refused(ask(service, None, "ping"), 401, "missing_api_key")
    assert_refused(ask(service, "hk_x", "ping"), 401, "invalid_api_key")


@pytest.mark.parametrize("restrictions", [{"recipients": []}, {"templates": ["*"]}, {"approval": "required"}])
def test_restricted_keys_may_use_mcp(service: Service, restrictions: dict[str, Any]) -> None:
    assert request(service, restricted(service, **restrictions), "ping") == {}


def test_unbounded_keys_are_refused_before_the_body_is_read(service: Service) -> None:
    for key in ("ACME", restricted(service, channels=["email"], senders=["*"])):
        assert_refused(service.post("/mcp", b"no JSON", key=key), 403, "restricted_key_required")


# -- protocol ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("new", "2025-11-25"),
        (None, "2025-11-25"),
    ],
)
def test_initialize_negotiates_the_version(service: Service, agent: str, requested: Any, expected: str) -> None:
    result = request(service, agent, "initialize", INITIALIZE | {"protocolVersion": requested})
    assert result["protocolVersion"] == expected
    assert result["capabilities"] == {"tools": {"listChanged": False}}
    assert result["serverInfo"]["name"] == "heliograph"


def test_every_tool_has_a_self_contained_schema(service: Service, agent: str) -> None:
    tools = request(service, agent, "tools/list")["tools"]
    assert {tool["name"] for tool in tools} == TOOLS
    for tool in tools:
        assert tool["description"] and tool["inputSchema"]["type"] == "object"
        jsonschema_rs.Draft202012Validator(tool["inputSchema"])  # all references resolve
    schemas = {tool["name"]: jsonschema_rs.Draft202012Validator(tool["inputSchema"]) for tool in tools}
    assert schemas["send_email"].is_valid(EMAIL | {"dry_run": True, "idempotency_key": "a"})
    assert not schemas["send_email"].is_valid(EMAIL | {"subjekt": "S"})
    assert not schemas["send_sms"].is_valid({"to": "+15005550006"})


@pytest.mark.parametrize("message", [{"method": "notifications/initialized"}, {"id": 3, "result": {}}])
def test_notifications_and_responses_are_accepted(service: Service, agent: str, message: Any) -> None:
    answer = service.post("/mcp", {"jsonrpc": "2.0"} | message, key=agent)
    assert (answer.status, answer.raw) == (202, b"")


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("resources/list", None, -32601),
        ("server/discover", {}, -32601),
        ("tools/call", {"name": "send_fax"}, -32602),
        ("tools/call", {"name": ["send_sms"]}, -32602),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": "send_sms", "arguments": []}, -32602),
        ("tools/list", {"cursor": "2"}, -32602),
        ("ping", [], -32602),
    ],
)
def test_invalid_messages_get_json_rpc_errors(
    service: Service, agent: str, method: str, params: Any, code: int
) -> None:
    answer = ask(service, agent, method, params)
    assert (answer.status, answer.json["id"], answer.json["error"]["code"]) == (200, 7, code)


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        ([PING], {"MCP-Protocol-Version": "2025-06-18"}, 400, "invalid_request"),
        ([], {"MCP-Protocol-Version": "2025-11-25"}, 400, "invalid_request"),
        ("ping", {}, 400, "invalid_request"),
        ({}, {}, 400, "invalid_request"),
        (PING | {"jsonrpc": "1.0"}, {}, 400, "invalid_request"),
        (PING | {"method": 1}, {}, 400, "invalid_request"),
        (PING | {"id": None}, {}, 400, "invalid_request"),
        (PING | {"id": [1]}, {}, 400, "invalid_request"),
        (PING | {"id": True}, {}, 400, "invalid_request"),
        (b'{"jsonrpc":', {}, 400, "invalid_json"),
        (b"[" * 100, {}, 400, "invalid_json"),
        (b"", {"Content-Type": "application/json"}, 400, "invalid_json"),
        (PING, {"MCP-Protocol-Version": "2024-11-05"}, 400, "invalid_request"),
        (PING, {"MCP-Protocol-Version": "2026-07-28"}, 400, "invalid_request"),
        (PING, {"MCP-Protocol-Version": "\xff"}, 400, "invalid_request"),
        (PING, {"Accept": "text/html"}, 400, "invalid_request"),
        (PING, {"Accept": "text/event-stream"}, 400, "invalid_request"),
        (PING, {"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
        (PING, {"Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
        (PING, {"Content-Length": str(41 * 1024 * 1024)}, 413, "payload_too_large"),
    ],
)
def test_bad_requests_get_one_error(
    service: Service, agent: str, body: Any, headers: dict[str, str], status: int, code: str
) -> None:
    assert_refused(service.post("/mcp", body, key=agent, headers=headers), status, code)


@pytest.mark.parametrize(
    "headers",
    [{"Accept": "*/*"}, {"Accept": "application/json, text/event-stream"}, {"MCP-Protocol-Version": "2025-11-25"}],
)
def test_common_headers_are_accepted(service: Service, agent: str, headers: dict[str, str]) -> None:
    answer = service.post("/mcp", PING, key=agent, headers=headers)
    assert (answer.status, answer.json) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})
    assert answer.headers["cache-control"] == "no-store"


# -- batches, of protocol version 2025-03-26 -----------------------------------------------------------------------


def send_call(id_: int, to: str = "delivered@simulator.test", **arguments: Any) -> dict[str, Any]:
    params = {"name": "send_email", "arguments": EMAIL | {"to": to} | arguments}
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}


def error_codes(answer: Answer) -> list[tuple[Any, int | None]]:
    """The id and error code of each response."""
    return [(item["id"], item["error"]["code"] if "error" in item else None) for item in answer.json]


@pytest.mark.parametrize("headers", [{}, {"MCP-Protocol-Version": "2025-03-26"}])
def test_batch_is_answered_with_one_response_for_each_request(
    service: Service, agent: str, headers: dict[str, str]
) -> None:
    messages = [PING, {"jsonrpc": "2.0", "method": "notifications/initialized"}, send_call(2), PING | {"id": "a"}]
    answer = service.post("/mcp", messages, key=agent, headers=headers)
    assert (answer.status, [item["id"] for item in answer.json]) == (200, [1, 2, "a"])
    sent = answer.json[1]["result"]["structuredContent"]
    assert service.get(f"/v1/emails/{sent['id']}").status == 200


@pytest.mark.parametrize(
    "messages",
    [
        [{"jsonrpc": "2.0", "method": "notifications/initialized"}] * 2,
        [{"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 2, "error": {}}],
    ],
)
def test_batch_without_requests_is_accepted(service: Service, agent: str, messages: Any) -> None:
    answer = service.post("/mcp", messages, key=agent)
    assert (answer.status, answer.raw) == (202, b"")


@pytest.mark.parametrize("messages", [[], [PING] * 51, [1] * 51])
def test_batch_without_messages_or_with_too_many_gets_one_error(service: Service, agent: str, messages: Any) -> None:
    answer = service.post("/mcp", messages, key=agent)
    assert (answer.status, answer.json["id"], answer.json["error"]["code"]) == (400, None, -32600)
    assert answer.headers["heliograph-should-retry"] == "false"


def test_batch_answers_each_invalid_message_with_an_error(service: Service, agent: str) -> None:
    initialize = {"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": INITIALIZE}
    messages = [
        *(1, "ping", None, [], [PING], {}, PING | {"jsonrpc": "1.0"}, PING | {"id": None}, PING | {"method": 1}),
        *(initialize, PING | {"method": "resources/list"}, PING | {"id": 9}),
    ]
    answer = service.post("/mcp", messages, key=agent)
    invalid: list[tuple[Any, int | None]] = [(None, -32600)] * 9
    assert error_codes(answer) == [*invalid, (5, -32600), (1, -32601), (9, None)]


def test_batch_cannot_exceed_a_limit(service: Service) -> None:
    key = restricted(service, recipients=["*@simulator.test"], per_day=2)
    answer = service.post("/mcp", [send_call(0, "ada@example.com"), *map(send_call, range(1, 5))], key=key)
    codes = [item["result"]["structuredContent"].get("code") for item in answer.json]
    assert codes == ["recipient_not_permitted", None, None, "key_limit_reached", "key_limit_reached"]


def test_batch_counts_each_request_against_the_rate_limit(service: Service, tmp_path: Path) -> None:
    (file := tmp_path / "restrictions.json").write_text('{"recipients": []}')
    created = service.run("key", "create", "--team", "team_slow", "--restrictions", str(file), "--json")
    key = json.loads(created.stdout)["token"]
    answer = service.post("/mcp", [PING | {"id": number} for number in range(10)], key=key)
    refused = [item["error"] for item in answer.json if "error" in item]
    assert len(refused) >= 4  # the limit is two a second, with a burst of four
    assert {error["code"] for error in refused} == {-32000}
    assert {error["data"]["code"] for error in refused} == {"rate_limit_exceeded"}
    assert answer.headers["ratelimit-remaining"] == "0"
    ids = {error["data"]["request_id"] for error in refused}
    assert len(ids) == len(refused)
    assert until(lambda: {id_ for id_, code in logged(service, "id, code") if code == "rate_limit_exceeded"} >= ids)


def test_batch_logs_each_call_with_an_id_of_its_own(service: Service, agent: str) -> None:
    answer = service.post("/mcp", [send_call(number, f"ada{number}@batch.test") for number in range(3)], key=agent)
    ids = [item["result"]["structuredContent"]["request_id"] for item in answer.json]
    assert len(set(ids)) == 3

    assert until(lambda: {id_ for id_, text in logged(service, "id, message") if "@batch.test" in text} == set(ids))


# -- tools ---------------------------------------------------------------------------------------------------------


def test_a_message_is_sent_found_and_read(service: Service, agent: str) -> None:
    sent = call(service, agent, "send_email", **EMAIL, tags={"by": "agent"})
    assert service.get(f"/v1/emails/{sent['id']}").json["tags"] == {"by": "agent"}
    assert call(service, agent, "get_message", id=sent["id"])["id"] == sent["id"]
    page = call(service, agent, "find_messages", tag="by:agent", limit=1)
    assert [item["id"] for item in page["data"]] == [sent["id"]]
    page = call(service, agent, "find_messages", channel=None, tag="by:agent", limit=None)
    assert [item["id"] for item in page["data"]] == [sent["id"]]
    text = call(service, agent, "send_sms", **SMS)
    assert text["id"] in [item["id"] for item in call(service, agent, "find_messages", channel="sms")["data"]]


def test_a_dry_run_sends_nothing(service: Service, agent: str) -> None:
    shown = call(service, agent, "send_email", **EMAIL, dry_run=True)
    assert (shown["dry_run"], shown["subject"]) == (True, "Hello")


def test_an_idempotency_key_is_shared_with_the_api(service: Service, agent: str) -> None:
    first = call(service, agent, "send_email", **EMAIL, idempotency_key="one")
    assert call(service, agent, "send_email", **EMAIL, idempotency_key="one") == first
    replayed = service.post("/v1/emails", EMAIL, key=agent, headers={"Idempotency-Key": "one"})
    assert (replayed.json, replayed.headers["idempotency-replayed"]) == (first, "true")
    other = refuse(service, agent, "send_email", **EMAIL | {"subject": "Other"}, idempotency_key="one")
    assert other["code"] == "idempotency_key_reused"


def test_templates_are_listed_and_rendered(service: Service, agent: str) -> None:
    templates = {item["id"] for item in call(service, agent, "list_templates", limit=100)["data"]}
    assert WELCOME["template_id"] in templates
    rendered = call(service, agent, "render_template", id=WELCOME["template_id"], variables={})
    assert rendered["missing"] == ["name"]


def test_the_inbox_is_listed_for_a_sandbox_team_only(service: Service, agent: str, tmp_path: Path) -> None:
    (file := tmp_path / "restrictions.json").write_text(json.dumps(ALLOWED))
    created = service.run("key", "create", "--team", "team_sandbox", "--restrictions", str(file), "--json")
    assert created.returncode == 0, created.stderr
    assert call(service, json.loads(created.stdout)["token"], "list_inbox")["object"] == "list"
    assert refuse(service, agent, "list_inbox")["code"] == "insufficient_scope"


def test_the_request_log_has_the_routes_of_the_tools(service: Service, agent: str) -> None:
    call(service, agent, "send_email", **EMAIL)
    refuse(service, agent, "send_email", **EMAIL | {"to": "log@example.com"})

    def refused() -> list[Any]:
        """Return the log entry of the refused call; of successful calls, only some are logged."""
        rows = logged(service, "route, status, code, message")
        assert [row for row in rows if row[0] == "POST /mcp" and row[1] < 400] == []
        return [row[:3] for row in rows if "log@example.com" in row[3]]

    assert until(refused) == [("POST /v1/emails", 403, "recipient_not_permitted")]


def test_an_error_is_explained(service: Service, agent: str) -> None:
    error = call(service, agent, "explain_error", code="recipient_not_permitted")
    assert (error["status"], error["code"]) == (403, "recipient_not_permitted")
    assert call(service, agent, "explain_error", code="mailbox_full")["retry_helps"] is True
    assert refuse(service, agent, "explain_error", code="no_such_code")["param"] == "code"


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "param"),
    [
        ("send_email", EMAIL | {"to": "ada@example.com"}, "recipient_not_permitted", "to"),
        ("send_email", EMAIL | {"subjekt": "S"}, "invalid_request", "subjekt"),
        ("send_email", EMAIL | {"dry_run": "yes"}, "invalid_request", "dry_run"),
        ("send_email", EMAIL | {"idempotency_key": ""}, "invalid_idempotency_key", "Idempotency-Key"),
        ("send_email", EMAIL | {"idempotency_key": "ü"}, "invalid_idempotency_key", "Idempotency-Key"),
        ("send_email", EMAIL | {"idempotency_key": 1}, "invalid_request", "idempotency_key"),
        ("send_sms", {}, "invalid_phone", "to"),
        ("get_message", {}, "invalid_request", "id"),
        ("get_message", {"id": "vrf_1"}, "message_not_found", "id"),
        ("get_message", {"id": "eml_1/cancel"}, "message_not_found", "id"),
        ("get_message", {"id": "eml_1", "limit": 1}, "invalid_request", "limit"),
        ("find_messages", {"channel": "fax"}, "invalid_request", "channel"),
        ("find_messages", {"limit": 101}, "invalid_request", "limit"),
        ("find_messages", {"limit": [1]}, "invalid_request", "limit"),
        ("find_messages", {"sort": "up"}, "invalid_request", "sort"),
        ("render_template", {"id": "tpl_none"}, "template_not_found", "id"),
        ("explain_error", {"code": ""}, "invalid_request", "code"),
    ],
)
def test_refusals_are_tool_errors(
    service: Service, agent: str, tool: str, arguments: dict[str, Any], code: str, param: str
) -> None:
    error = refuse(service, agent, tool, **arguments)
    assert (error["code"], error["param"]) == (code, param)


def test_a_tool_needs_the_scope_and_the_channel_of_its_route(service: Service) -> None:
    sender = restricted(service, channels=["email"], **ALLOWED)
    assert refuse(service, sender, "list_templates")["code"] == "insufficient_scope"
    assert refuse(service, sender, "send_sms", **SMS)["code"] == "channel_not_permitted"
    manager = restricted(service, scopes=("manage",), **ALLOWED)
    assert refuse(service, manager, "send_email", **EMAIL)["code"] == "insufficient_scope"
    assert call(service, manager, "list_templates")["object"] == "list"
