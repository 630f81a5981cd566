"""What a process of a cell refuses, because it is for another cell."""

import json
from typing import Any, cast

import pytest

from heliograph.api.app import Api
from heliograph.compat.adapters import ADAPTERS
from heliograph.domain.refusals import InvalidApiKey, Refusal, WrongCell
from heliograph.submission.replies import reply_to
from heliograph.web.adapter import own_api
from heliograph.web.dispatcher import Dispatcher
from heliograph.web.request import Request, Response
from tests.make_request import make_request

pytestmark = pytest.mark.anyio

HOST = "cell-01.mail.test"
REFUSAL = WrongCell.for_key("cell_01", "cell_02")
KEYLESS = ("/dashboard", "/dashboard/sign-in", "/carriers/car_1/callback", "/unsubscribe/t", "/bin/team_a/t")


class RecordingApi:
    """Stands in for the API and the pages."""

    async def __call__(self, _: Request) -> Response:
        return Response(200, b"")

    def refusal_response(self, refusal: Refusal, _: Request | None = None) -> Response:
        return Response(421 if isinstance(refusal, WrongCell) else 400, refusal.message.encode())


def dispatcher(cell: str = "cell_01", host: str = HOST) -> Dispatcher:
    api = RecordingApi()
    return Dispatcher(cast(Api, api), api, cell=cell, cell_host=host)


async def status(handler: Dispatcher, path: str, host: str) -> int:
    return (await handler(make_request("GET", path, {"host": host}))).status


@pytest.mark.parametrize("path", [*KEYLESS, "/hooks/supabase/team_a", "/compat/resend/files/a/b"])
async def test_request_without_a_key_is_served_at_the_host_name_of_the_cell_only(path: str) -> None:
    hosts = (HOST, HOST.upper(), f"{HOST}:8443", "cell-02.mail.test", "api.mail.test", "")
    assert [await status(dispatcher(), path, host) for host in hosts] == [200, 200, 200, 421, 421, 421]


@pytest.mark.parametrize("path", ["/v1/emails", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json"])
async def test_other_requests_are_served_at_every_host_name(path: str) -> None:
    assert [await status(dispatcher(), path, host) for host in (HOST, "api.mail.test", "10.0.0.1")] == [200] * 3


@pytest.mark.parametrize("path", KEYLESS)
async def test_plain_installation_is_served_at_every_host_name(path: str) -> None:
    assert await status(dispatcher("", ""), path, "mail.test") == 200


async def test_refusal_names_the_host_name_of_the_cell() -> None:
    response = await dispatcher()(make_request("GET", "/dashboard", {"host": "cell-02.mail.test"}))
    assert HOST in response.body.decode()


@pytest.mark.parametrize("adapter", [own_api([]), *ADAPTERS], ids=lambda adapter: adapter.prefix)
def test_every_api_answers_421_to_a_key_of_another_cell(adapter: Any) -> None:
    if adapter.has_signed_body:
        return  # without a key: the host name is checked
    response = adapter.error_response(REFUSAL, make_request("POST", f"{adapter.prefix}/x"), "http://h")
    unknown = adapter.error_response(InvalidApiKey(), make_request("POST", f"{adapter.prefix}/x"), "http://h")
    assert response.status == 421
    assert "cell_01" in response.body.decode()
    body = json.loads(response.body)
    assert body.keys() == json.loads(unknown.body).keys()


def test_smtp_client_is_told_at_authentication() -> None:
    assert reply_to(REFUSAL).startswith("535 5.7.8 wrong_cell: This key belongs to cell_01")
