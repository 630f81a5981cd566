"""The README's examples for FastAPI and Flask, with requests signed by the Standard Webhooks library."""

import asyncio
import json
import re
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from standardwebhooks import Webhook

from tests.clients.test_python import ROOT

SECRET = "whsec_EVB6Di9eadXfpApiob17buV+a82Fxnyb"
EVENT = json.dumps({"id": "evt_1", "type": "email.sent", "data": {"id": "eml_1"}})


@pytest.fixture(scope="module")
def examples() -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "readme"}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S):
        if "FastAPI" in block or "Flask" in block:
            exec(compile(block, "README.md", "exec"), namespace)
    return namespace


def signed(body: str) -> dict[str, str]:
    now = datetime.now(UTC)
    signature = Webhook(SECRET).sign("evt_1", now, body)
    return {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature,
        "content-type": "application/json",
    }


def by_fastapi(examples: dict[str, Any], headers: dict[str, str]) -> int:
    async def post() -> int:
        transport = httpx2.ASGITransport(app=examples["api"])
        async with httpx2.AsyncClient(transport=transport, base_url="http://app.test") as client:
            return (await client.post("/hooks", content=EVENT, headers=headers)).status_code

    return asyncio.run(post())


def by_flask(examples: dict[str, Any], headers: dict[str, str]) -> int:
    return int(examples["app"].test_client().post("/hooks", data=EVENT, headers=headers).status_code)


@pytest.mark.parametrize("post", [by_fastapi, by_flask])
def test_only_signed_requests_are_accepted(
    examples: dict[str, Any], capsys: pytest.CaptureFixture[str], post: Any
) -> None:
    assert post(examples, signed(EVENT)) == 204
    assert capsys.readouterr().out == "email.sent eml_1\n"
    assert post(examples, {}) == 400
    assert post(examples, signed(EVENT + " ")) == 400
    assert capsys.readouterr().out == ""
