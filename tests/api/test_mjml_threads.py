"""MJML is compiled in a thread, whatever the request: other requests are served meanwhile."""

import threading
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest

from heliograph.api.app import Api
from heliograph.domain.setup.records import TeamRecord
from heliograph.storage.store import Store
from tests.api.test_own_writes import TOKEN, api_of, key
from tests.clocks import TestClock
from tests.dashboard.inside import Pages, write_records
from tests.make_request import make_request
from tests.storage.test_idempotency import make_context

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find_spec("mjml") is None, reason="mjml-python is not installed"),
]

MJML = "<mjml><mj-body><mj-section><mj-column><mj-text>Hello</mj-text></mj-column></mj-section></mj-body></mjml>"
LAYOUT = MJML.replace("Hello", "{{content}}")
TEMPLATE_FIELDS = {"channel": "email", "name": "N", "subject": "S", "html": MJML, "variables": ""}
EDITED = "/dashboard/teams/team_a"


@pytest.fixture
async def api(store: Store, clock: TestClock) -> Api:
    record = TeamRecord(ref=1, id="team_a", name="A", mode="live", rate_limit=0)
    await write_records(store, ("team", "team_a", record, "team_a"), key(TOKEN))
    return api_of(store, clock)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return the threads in which MJML was compiled."""
    import mjml

    compile_, used = mjml.mjml2html, list[threading.Thread]()

    def compiling(*args: Any, **kwargs: Any) -> Any:
        used.append(threading.current_thread())
        return compile_(*args, **kwargs)

    monkeypatch.setattr(mjml, "mjml2html", compiling)
    return used


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/templates", {"channel": "email", "name": "N", "subject": "S", "html": MJML}),
        (
            "/v1/templates",
            {"channel": "email", "name": "N", "subject": "S", "text": "T", "locales": {"de": {"html": MJML}}},
        ),
        ("/v1/layouts", {"name": "N", "html": LAYOUT}),
        ("/compat/resend/templates", {"name": "N", "subject": "S", "html": MJML}),
        ("/compat/postmark/templates", {"Name": "N", "Subject": "S", "HtmlBody": MJML}),
        ("/compat/postmark/templates/validate", {"Subject": "S", "HtmlBody": MJML}),
    ],
)
async def test_mjml_given_by_api_is_compiled_off_the_loop(
    api: Api, threads: list[threading.Thread], path: str, body: dict[str, Any]
) -> None:
    headers = {"authorization": f"Bearer {TOKEN}", "x-postmark-server-token": TOKEN, "content-type": "application/json"}
    await api(make_request("POST", path, headers, msgspec.json.encode(body)))
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("templates/new", TEMPLATE_FIELDS),
        ("templates/preview", TEMPLATE_FIELDS),
        ("layouts/new", {"name": "N", "html": LAYOUT}),
        ("layouts/preview", {"name": "N", "html": LAYOUT}),
    ],
)
async def test_mjml_given_in_the_dashboard_is_compiled_off_the_loop(
    api: Api, store: Store, clock: TestClock, threads: list[threading.Thread], path: str, form: dict[str, str]
) -> None:
    await Pages(make_context(store, clock)).post(f"{EDITED}/{path}", form)
    assert threads
    assert threading.main_thread() not in threads
