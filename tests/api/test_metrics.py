"""Who may read the metrics: loopback, the operator's ranges, whoever has the token; others find no such page."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliograph.api.health import metrics
from heliograph.rules.refusals import NotFound
from heliograph.settings import BadSetting, Settings, read_settings
from heliograph.web.front import Front
from heliograph.web.request import Request
from tests.asked import asked
from tests.service import Service

pytestmark = pytest.mark.anyio

TOKEN = "0123456789abcdef"


async def is_shown(address: str, allow: tuple[str, ...] = (), token: str = "", **headers: str) -> bool:
    async def nothing() -> list[Any]:
        return []

    context = SimpleNamespace(
        metrics_allow=allow,
        metrics_token=token,
        process=None,
        loop_lag=lambda: 0.0123456,
        state=SimpleNamespace(answers={}),
        clock=SimpleNamespace(now=lambda: 0),
        store=SimpleNamespace(
            outbox=SimpleNamespace(queue=SimpleNamespace(answer=nothing)),
            setup=SimpleNamespace(current=SimpleNamespace(carriers=[])),
            circuits=SimpleNamespace(current={}),
        ),
    )
    given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    call: Any = SimpleNamespace(context=context, request=SimpleNamespace(address=address, headers=given))
    try:
        answer = await metrics(call)
    except NotFound:
        return False
    assert b"\nheliograph_event_loop_lag_seconds 0.012346\n" in answer.body
    return True


@pytest.mark.parametrize(
    ("address", "allow", "shown"),
    [
        ("127.0.0.1", (), True),
        ("127.8.8.8", (), True),
        ("::1", (), True),
        ("::ffff:127.0.0.1", (), True),
        ("10.0.0.1", (), False),
        ("2001:db8::1", (), False),
        ("", (), False),
        ("10.0.0.1", ("10.0.0.0/8",), True),
        ("10.0.0.1", ("10.0.1.0/24", "2001:db8::/32"), False),
        ("2001:db8::1", ("10.0.1.0/24", "2001:db8::/32"), True),
    ],
)
async def test_by_address(address: str, allow: tuple[str, ...], shown: bool) -> None:
    assert await is_shown(address, allow) is shown
    assert not await is_shown(address, allow, x_forwarded_for="127.0.0.1")  # of a proxy that nobody vouches for
    assert not await is_shown(address, allow, forwarded="for=127.0.0.1")


@pytest.mark.parametrize(
    ("token", "given", "shown"),
    [
        (TOKEN, f"Bearer {TOKEN}", True),
        (TOKEN, f"Bearer {TOKEN}x", False),
        (TOKEN, "Bearer ", False),
        (TOKEN, TOKEN, False),
        ("", "Bearer ", False),
        ("", "", False),
    ],
)
async def test_by_token(token: str, given: str, shown: bool) -> None:
    assert await is_shown("203.0.113.7", token=token, authorization=given, x_forwarded_for="203.0.113.7") is shown


@pytest.mark.parametrize(
    ("trusted", "forwarded", "address", "shown"),
    [
        (("127.0.0.1",), "203.0.113.7", "203.0.113.7", False),
        (("127.0.0.1",), "10.1.2.3", "10.1.2.3", True),
        (("127.0.0.1",), "127.0.0.1", "127.0.0.1", False),  # the proxy's word, or a stranger's: nobody can tell
        (("192.0.2.1",), "10.1.2.3", "127.0.0.1", False),
        ((), "10.1.2.3", "127.0.0.1", False),
    ],
)
async def test_behind_a_proxy(trusted: tuple[str, ...], forwarded: str, address: str, shown: bool) -> None:
    seen: list[Any] = []

    async def api(request: Request) -> None:
        seen.append((request.address, request.headers))

    api.refused = api.no_room = None  # type: ignore[attr-defined]
    await Front(cast(Any, api), cast(Any, None), trusted)(asked("GET", "/metrics", {"x-forwarded-for": forwarded}))
    [(found, left)] = seen
    assert found == address
    assert await is_shown(found, ("10.0.0.0/8",), **{name.decode(): "x" for name in left}) is shown


def test_settings() -> None:
    given = {"HELIOGRAPH_METRICS_ALLOW": "10.0.0.0/8, 2001:db8::/32", "HELIOGRAPH_METRICS_TOKEN": TOKEN}
    read = read_settings({}, given)
    assert (read.metrics_allow, read.metrics_token) == (("10.0.0.0/8", "2001:db8::/32"), TOKEN)
    assert (Settings().metrics_allow, Settings().metrics_token) == ((), "")
    for name, value in (("METRICS_ALLOW", "10.0.0.1/8"), ("METRICS_TOKEN", "too short"), ("METRICS_TOKEN", "a b" * 9)):
        with pytest.raises(BadSetting) as refused:
            read_settings({}, {f"HELIOGRAPH_{name}": value})
        assert (value in str(refused.value)) == (name == "METRICS_ALLOW")  # a secret is not repeated


def test_over_http(shared_service: Service) -> None:
    assert shared_service.get("/metrics", key=None).status == 200
    hidden = shared_service.get("/metrics", key=None, headers={"X-Forwarded-For": "127.0.0.1"})
    assert (hidden.status, hidden.code) == (404, "not_found")
    assert hidden.json["error"]["message"] == shared_service.get("/nothing", key=None).json["error"]["message"]
