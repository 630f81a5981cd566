"""The request log page: filters, isolation between teams, and escaping."""

import re
from typing import Any

import pytest

from heliograph.domain.setup.records import TeamRecord
from heliograph.storage.requests import LoggedRequest
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio

HERE = "/dashboard/teams/team_a/requests"


def make_logged_request(clock: TestClock, team: int = 1, **more: Any) -> LoggedRequest:
    fields: dict[str, Any] = {"key": "abc", "route": "POST /v1/sms", "status": 202} | more
    return LoggedRequest(id=clock.new_id("req_"), team=team, at=clock.now(), **fields)


@pytest.fixture
async def pages(store: Store, clock: TestClock) -> Pages:
    for ref, id_ in enumerate(("team_a", "team_b"), 1):
        await write_records(store, ("team", id_, TeamRecord(ref=ref, id=id_, name=id_), id_))
    return Pages(make_context(store, clock))


async def test_request_filters_show_matching_requests(pages: Pages, store: Store, clock: TestClock) -> None:
    yes = make_logged_request(clock, subject="sms_01KA0000000000000000000000", took_ms=12)
    no = make_logged_request(
        clock, route="POST /v1/emails", status=400, code="invalid_request", message="<b>No</b>", refused=1
    )
    await store.requests.insert([yes, no, make_logged_request(clock, team=2)])
    for query, response in {
        "": {yes.id, no.id},
        "?class=2": {yes.id},
        "?class=4": {no.id},
        "?class=5": set(),
        "?class=%00x": {yes.id, no.id},
        "?code=invalid_request": {no.id},
        "?route=POST+/v1/sms": {yes.id},
        "?key=other": set(),
        "?time=hour": {yes.id, no.id},
        f"?before={no.id}": {yes.id},
    }.items():
        page = await pages.get(f"{HERE}{query}", "viewer")
        assert page.status == 200
        assert {item.id for item in (yes, no) if f'data-key="{item.id}"' in page.html} == response, query
    clock.forward(2 * 3_600_000)
    assert "No matching requests" in (await pages.get(f"{HERE}?time=hour")).text


async def test_request_page_explains_error_and_links_result(pages: Pages, store: Store, clock: TestClock) -> None:
    yes = make_logged_request(clock, subject="sms_01KA0000000000000000000000", replayed=1)
    no = make_logged_request(clock, status=400, code="invalid_request", message="<b>No</b>", refused=1, more=3)
    await store.requests.insert([yes, no])
    response = await pages.get(f"{HERE}?id={no.id}")
    assert (response.status, response.headers["location"]) == (303, f"{HERE}/{no.id}")
    page = await pages.get(f"{HERE}/{no.id}", "viewer")
    assert "What to do" in page.text and "&lt;b&gt;No" in page.html and "3 more requests" in page.text
    page = await pages.get(f"{HERE}/{yes.id}", "viewer")
    assert f'href="/dashboard/teams/team_a/messages/{yes.subject}"' in page.html
    assert "Replayed" in page.text and "What to do" not in page.text


async def test_filters_list_only_what_occurred_by_group(pages: Pages, store: Store, clock: TestClock) -> None:
    await store.requests.insert(
        [
            make_logged_request(clock),
            make_logged_request(clock, route="GET /compat/resend/emails"),
            make_logged_request(clock, status=400, code="invalid_phone", refused=1),
            make_logged_request(clock, team=2, route="POST /v1/whatsapp"),
        ]
    )
    html = (await pages.get(f"{HERE}?code=body_too_long")).html
    groups = {
        label: re.findall('<option value="([^"]*)"', options)
        for label, options in re.findall('<optgroup label="([^"]*)">(.*?)</optgroup>', html)
    }
    assert groups == {
        "Resend": ["GET /compat/resend/emails"],
        "Sms": ["POST /v1/sms"],
        "400": ["body_too_long", "invalid_phone"],
    }


async def test_request_of_other_team_is_not_found(pages: Pages, store: Store, clock: TestClock) -> None:
    theirs = make_logged_request(clock, team=2)
    await store.requests.insert([theirs])
    assert (await pages.get(f"{HERE}/{theirs.id}", "owner")).status == 404
    assert "Request not found" in (await pages.get(f"{HERE}?id={theirs.id}", "owner")).text
    assert "No requests yet" in (await pages.get(HERE, "viewer")).text
