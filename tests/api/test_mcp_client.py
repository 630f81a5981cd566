"""The official MCP client against POST /mcp: renders, sends within its limits and is refused beyond them."""

from typing import Any

import httpx2
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from tests.api.sends import EMAIL, WELCOME
from tests.api.test_key_restrictions import restricted
from tests.api.test_mcp import ALLOWED, TOOLS, service
from tests.service import Service

__all__ = ["service"]
pytestmark = pytest.mark.anyio


async def test_official_client_sends_within_its_limits(service: Service) -> None:
    key = restricted(service, scopes=("send", "manage"), **ALLOWED)
    headers, url = {"Authorization": f"Bearer {key}"}, f"http://127.0.0.1:{service.ports[-1]}/mcp"
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(url, http_client=http) as (read, write, *_),
        ClientSession(read, write) as session,
    ):
        handshake = await session.initialize()
        assert handshake.server_info.name == "heliograph"
        assert {tool.name for tool in (await session.list_tools()).tools} == TOOLS

        async def call(tool: str, **arguments: Any) -> CallToolResult:
            result = await session.call_tool(tool, arguments)
            assert isinstance(result, CallToolResult)
            return result

        rendered = await call("render_template", id=WELCOME["template_id"], variables=WELCOME["variables"])
        assert rendered.structured_content and "Ada" in rendered.structured_content["text"]
        sent = await call("send_email", **WELCOME)
        assert sent.structured_content and not sent.is_error
        assert service.get(f"/v1/emails/{sent.structured_content['id']}").status == 200
        refused = await call("send_email", **EMAIL | {"to": "ada@example.com"})
        assert refused.is_error and refused.structured_content
        assert refused.structured_content["code"] == "recipient_not_permitted"
        assert refused.structured_content["fix"]
