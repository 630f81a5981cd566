"""Live pages: changes appear on open pages of authorized users, at a bounded cost and without losing user input."""

import asyncio
import http.client
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.dashboard import live
from heliograph.dashboard.live import (
    CHANGED_EVENT,
    ENDED_EVENT,
    RECONNECT_EVENT,
    REJECTED_EVENT,
    STREAM_START,
    Live,
    PageVersion,
    Subscriber,
    Subscription,
)
from heliograph.storage.engine.database import StoreUnavailable
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.service import PATIENCE_S, until

expect = sync_api.expect
TEAM = "/dashboard/teams/team_acme"
OWNER = ("--team", "team_acme", "--role", "owner")


# -- notifications ---------------------------------------------------------------------------------------------


def run_in_thread(check: Coroutine[Any, Any, None]) -> None:
    """Run in another thread, because the browser of other tests keeps an event loop running in this one."""

    async def run_bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await check

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, run_bounded()).result()


class FakePage:
    """Fake page: its versions, and the number of reads."""

    def __init__(self, *words: str, every_s: float = 2.0) -> None:
        self.words, self.looks = list(words), 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.watch = Subscription(key=("shown",), read_version=self.read, parts=("a",), interval_s=every_s)

    async def read(self) -> PageVersion | None:
        self.looks += 1
        await self.go_on.wait()
        word = self.words.pop(0) if len(self.words) > 1 else self.words[0]
        if word == "down":
            raise StoreUnavailable
        return None if word == "gone" else PageVersion({"a": word, "b": "not shown"}, is_final=word == "end")


class FakeUser:
    def __init__(self) -> None:
        self.may, self.draining = True, False
        self.follower = Subscriber(
            key=("who",), may_read=self.may_read, is_draining=lambda: self.draining, person="ada", team="acme"
        )

    async def may_read(self) -> bool:
        return self.may


async def collect(stream: AsyncIterator[bytes]) -> list[bytes]:
    return [item async for item in stream]


def test_subscribers_of_same_page_share_one_version_read() -> None:
    async def story() -> None:
        response, user, live_streams = FakePage("1", every_s=100), FakeUser().follower, Live()
        response.go_on.clear()
        streams = [live_streams.stream_changes(response.watch, user, "0") for _ in range(2)]
        for stream in streams:
            assert await anext(stream) == STREAM_START
        waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
        while not response.looks:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert response.looks == 1
        response.go_on.set()
        assert [await item for item in waiting] == [CHANGED_EVENT, CHANGED_EVENT]
        late = live_streams.stream_changes(response.watch, user, "0")
        assert [await anext(late), await anext(late)] == [STREAM_START, CHANGED_EVENT]
        assert await live_streams.version(response.watch) == "1"
        assert (response.looks, live_streams.stream_count) == (1, 3)
        for stream in (*streams, late):
            await stream.aclose()
        assert (
            await live_streams.version(response.watch) == "1"
        )  # no stream is open: a new page queries the version itself
        assert (response.looks, live_streams.stream_count) == (2, 0)

    run_in_thread(story())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["1", "gone"], [STREAM_START, ENDED_EVENT]),
        (["2", "gone"], [STREAM_START, CHANGED_EVENT, ENDED_EVENT]),
        (["1", "2", "2", "3", "gone"], [STREAM_START, CHANGED_EVENT, CHANGED_EVENT, ENDED_EVENT]),
        (["down", "2", "gone"], [STREAM_START, CHANGED_EVENT, ENDED_EVENT]),
        (
            ["end"],
            [STREAM_START, CHANGED_EVENT, CHANGED_EVENT, ENDED_EVENT],
        ),  # a second time, after webhook events were published
    ],
)
def test_stream_sends_changed_parts(words: list[str], expected: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTIFY_INTERVAL_MAX_S", "NOTIFY_SPACING_S", "FINAL_DELAY_S"):
        monkeypatch.setattr(live, name, 0.01)

    async def story() -> None:
        shown = FakePage(*words, every_s=0.01)
        assert await collect(Live().stream_changes(shown.watch, FakeUser().follower, "1")) == expected

    run_in_thread(story())


def test_stream_ends_on_lost_access_and_on_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "ACCESS_CHECK_INTERVAL_S", 0.01)

    async def story() -> None:
        for name, word in (("may", ENDED_EVENT), ("draining", RECONNECT_EVENT)):
            user, live_streams = FakeUser(), Live()
            stream = live_streams.stream_changes(FakePage("1", every_s=0.01).watch, user.follower, "1")
            assert await anext(stream) == STREAM_START
            setattr(user, name, name == "draining")
            assert await collect(stream) == [word]
            assert live_streams.stream_count == 0

    run_in_thread(story())


def test_stream_ends_after_its_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STREAM_LIFETIME_S", 0.05)

    async def story() -> None:
        assert await collect(Live().stream_changes(FakePage("1", every_s=0.01).watch, FakeUser().follower, "1")) == [
            STREAM_START,
            RECONNECT_EVENT,
        ]

    run_in_thread(story())


@pytest.mark.parametrize(
    ("name", "fills", "free"),
    [
        ("USER_STREAMS_MAX", ("ada", "acme"), [("ada", "acme"), ("ada", "other"), ("ada", "")]),
        ("TEAM_STREAMS_MAX", ("{}", "acme"), [("bob", "acme")]),
        ("STREAMS_MAX", ("{}", "{}"), [("bob", "acme"), ("bob", "")]),
    ],
)
def test_streams_per_person_are_limited(name: str, fills: tuple[str, str], free: list[tuple[str, str]]) -> None:
    async def story() -> None:
        live_streams, response = Live(), FakePage("1")

        def stream(person: str, team: str) -> AsyncIterator[bytes]:
            return live_streams.stream_changes(
                response.watch, replace(FakeUser().follower, person=person, team=team), "1"
            )

        most = getattr(live, name)
        opened = [stream(fills[0].format(number), fills[1].format(number)) for number in range(most)]
        assert [await anext(item) for item in opened] == [STREAM_START] * most
        for item in free:
            assert await collect(stream(*item)) == [REJECTED_EVENT]
        if name != "STREAMS_MAX":
            assert await anext(stream("carol", "other")) == STREAM_START
        await opened[0].aclose()  # type: ignore[attr-defined]
        assert await anext(stream(*free[0])) == STREAM_START

    run_in_thread(story())


def test_continuous_changes_are_notified_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps: list[float] = []

    async def look(_: Live, __: Any, read: Any, ___: float) -> Any:
        return await read()

    async def pause(_: Live, seconds: float, __: Subscriber) -> None:
        gaps.append(seconds)

    async def story() -> None:
        await collect(Live().stream_changes(FakePage("2", "3", "4", "5", "5", "gone").watch, FakeUser().follower, "1"))

    monkeypatch.setattr(Live, "_read_cached", look)
    monkeypatch.setattr(Live, "_pause", pause)
    monkeypatch.setattr(Live, "_reserve_notification_slot", lambda _: 0)
    run_in_thread(story())
    assert [gap for gap in gaps if gap] == [3.0, 4.5, 5.0, 5.0, 2.0]


def test_pages_are_notified_in_turn() -> None:
    async def story() -> None:
        live_streams = Live()
        waits = [live_streams._reserve_notification_slot() for _ in range(3)]
        assert waits[0] == 0
        assert waits[1] > 0.2
        assert waits[2] > 0.45

    run_in_thread(story())


# -- in the browser --------------------------------------------------------------------------------------------


def send(site: Site, subject: str, to: str = "delivered@simulator.test") -> str:
    sent = site.service.post("/v1/emails", {"from": "hello@acme.test", "to": to, "subject": subject, "text": "Hello"})
    assert sent.status == 202, sent.raw
    return str(sent.json["id"])


def open_second_tab(page: Any, path: str) -> Any:
    """Open a path in another tab of the same browser."""
    tab = page.context.new_page()
    tab.goto(path)
    return tab


def wait_until_live(page: Any) -> Any:
    """Wait until the page is live, and set a mark that a reload would remove."""
    expect(page.locator(".pulse")).to_have_text("Updating")
    page.evaluate("window.mark = 'kept'")
    return page


def was_not_reloaded(page: Any) -> bool:
    return bool(page.evaluate("window.mark === 'kept'"))


def test_new_message_appears_on_open_pages(site: Site, shoot: Shoot) -> None:
    send(site, "The first")
    pages = [site.open("live@example.com", *OWNER, path=f"{TEAM}/messages")]
    pages += [open_second_tab(pages[0], path) for path in (TEAM, f"{TEAM}/inbox", f"{TEAM}/messages?q=wanted")]
    messages, overview, inbox, search = map(wait_until_live, pages)
    sent = overview.locator(".tiles .figure").first
    before = int(sent.inner_text())
    send(site, "Wanted at once")
    for page in (messages, inbox, search):
        expect(page.locator("tbody tr:not(.day)").first).to_contain_text("Wanted at once")
    for page in (messages, search):
        expect(page.locator("tbody .badge").first).to_have_text("Delivered")
    expect(sent).to_have_text(str(before + 1))
    expect(search.locator("tbody tr:not(.day)")).to_have_count(1)
    assert all(map(was_not_reloaded, pages))
    shoot(messages, "live-messages")
    shoot(overview, "live-overview")


def test_live_update_keeps_user_input(site: Site) -> None:
    send(site, "Held fast")
    overview = wait_until_live(site.open("hold@example.com", *OWNER, path=TEAM))
    messages = wait_until_live(open_second_tab(overview, f"{TEAM}/messages"))
    overview.get_by_label("To").fill("typed@example.com")
    overview.locator("main details").first.locator("summary").click()
    link = messages.get_by_role("link", name="Held fast").first
    link.focus()
    path = link.get_attribute("href")
    sent = overview.locator(".tiles .figure").first
    before = int(sent.inner_text())
    send(site, "Another one")
    expect(messages.locator("tbody tr:not(.day)").first).to_contain_text("Another one")
    assert messages.evaluate("document.activeElement.getAttribute('href')") == path
    expect(sent).to_have_text(str(before + 1))
    expect(overview.get_by_label("To")).to_have_value("typed@example.com")
    assert overview.locator("main details").first.get_attribute("open") is not None
    assert was_not_reloaded(messages)
    assert was_not_reloaded(overview)


def test_hidden_page_fetches_no_updates(site: Site) -> None:
    hidden = wait_until_live(site.open("hide@example.com", *OWNER, path=f"{TEAM}/messages"))
    shown = wait_until_live(open_second_tab(hidden, f"{TEAM}/messages"))
    requested_urls: list[str] = []
    hidden.on("request", lambda request: requested_urls.append(request.url))
    turn = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    turn += "document.dispatchEvent(new Event('visibilitychange'))"
    hidden.evaluate(turn % "true")
    expect(hidden.locator(".pulse")).to_have_text("")
    send(site, "Behind the curtain")
    expect(shown.locator("tbody tr:not(.day)").first).to_contain_text("Behind the curtain")
    expect(shown.locator("tbody .badge").first).to_have_text("Delivered")
    assert requested_urls == []
    hidden.evaluate(turn % "false")
    expect(hidden.locator("tbody tr:not(.day)").first).to_contain_text("Behind the curtain")
    assert was_not_reloaded(hidden)


def test_webhook_page_updates_live_on_failed_deliveries(site: Site) -> None:
    page = site.open("hook@example.com", *OWNER, path=f"{TEAM}/webhooks/new")
    page.get_by_label("Endpoint URL").fill("http://127.0.0.1:1/nobody")
    page.get_by_role("button", name="Create webhook").click()
    page.goto(f"{TEAM}/webhooks")
    page.get_by_role("link", name="/nobody").click()
    wait_until_live(page)
    page.get_by_text("Choose a period").click()
    page.get_by_label("After (UTC)").fill("2026-01-01T00:00")
    send(site, "For the webhook")
    expect(page.locator("#deliveries tbody tr").filter(has_text="email.")).not_to_have_count(0)
    expect(page.locator("#health")).to_contain_text("Failing")
    expect(page.locator("#trouble")).to_contain_text("Deliveries are failing")
    expect(page.get_by_label("After (UTC)")).to_have_value("2026-01-01T00:00")
    assert was_not_reloaded(page)


def test_verification_and_queue_pages_update_live(site: Site) -> None:
    operator = wait_until_live(site.open("queue@example.com", "--operator", path="/dashboard/operator/queues"))
    page = wait_until_live(open_second_tab(operator, f"{TEAM}/verifications"))
    begun = site.service.post("/v1/verify", {"to": "+15005551042"}).json["id"]
    row = page.locator("tbody tr:not(.day)").first
    expect(row).to_contain_text("Waiting")
    site.service.post(f"/v1/verify/{begun}/check", {"code": "551042"})
    expect(row).to_contain_text("Verified")
    assert site.service.run("pause").returncode == 0
    try:
        expect(operator.locator("#delivery")).to_contain_text("Resume delivery")
        send(site, "Waiting")
        expect(operator.locator("#waiting tbody tr")).to_contain_text("Email")
    finally:
        site.service.run("resume")
    expect(operator.locator("#waiting")).to_contain_text("No queued messages")
    assert was_not_reloaded(operator)
    assert was_not_reloaded(page)


def test_pages_without_javascript_work_without_live_updates(site: Site) -> None:
    page = site.open("plain@example.com", *OWNER, path=TEAM, java_script_enabled=False)
    for path in ("", "/messages", "/inbox", "/verifications"):
        assert page.goto(TEAM + path).status == 200
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator(".pulse")).to_have_text("")


def test_dangerous_action_without_javascript_is_confirmed_on_a_page(site: Site) -> None:
    queues = "/dashboard/operator/queues"
    page = site.open("plain-op@example.com", "--operator", path=queues, java_script_enabled=False)
    page.get_by_role("button", name="Pause delivery").click()
    expect(page.get_by_role("heading", name="Pause delivery?")).to_be_visible()
    expect(page.get_by_text("not sent until you resume")).to_be_visible()
    page.goto(queues)
    expect(page.get_by_role("button", name="Pause delivery")).to_be_visible()  # nothing was changed
    page.get_by_role("button", name="Pause delivery").click()
    page.get_by_role("button", name="Pause delivery").click()
    page.get_by_role("button", name="Resume delivery").click()
    expect(page.get_by_role("button", name="Pause delivery")).to_be_visible()


# -- authorization and limits ----------------------------------------------------------------------------------


class EventStream:
    """One event stream, read without a browser."""

    def __init__(self, site: Site, cookie: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", site.service.ports[-1], timeout=PATIENCE_S)
        self._connection.request("GET", f"{TEAM}/live?of=messages", headers={"Cookie": cookie})
        self.answer = self._connection.getresponse()

    def read_start(self) -> bytes:
        return self.answer.read1()

    def read_rest(self) -> bytes:
        return self.answer.read()

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


def cookie_header(page: Any) -> str:
    return "; ".join(f"{item['name']}={item['value']}" for item in page.context.cookies())


def test_stream_ends_with_session_and_role(site: Site) -> None:
    leaver = site.open("leaver@example.com", *OWNER, path="/dashboard/account")
    removed = site.open("removed@example.com", "--team", "team_acme", "--role", "viewer", path="/dashboard/account")
    lines = [EventStream(site, cookie_header(page)) for page in (leaver, removed)]
    assert [line.answer.status for line in lines] == [200, 200]
    leaver.goto(f"{TEAM}/team")
    leaver.get_by_label("More about removed@example.com").click()
    leaver.get_by_role("row").filter(has_text="removed@example.com").get_by_role("button", name="Remove").click()
    expect(leaver.locator(".flash")).to_contain_text("removed from the team")
    leaver.locator("header .mine > summary").click()
    leaver.get_by_role("button", name="Sign out").click()
    leaver.wait_for_url("**/sign-in**")
    assert [line.read_rest().endswith(ENDED_EVENT) for line in lines] == [True, True]
    assert EventStream(site, cookie_header(leaver)).answer.status == 303
    assert EventStream(site, cookie_header(removed)).answer.status == 404


def test_closed_streams_free_their_slots(site: Site) -> None:
    page = site.open("many@example.com", *OWNER, path="/dashboard/account")
    cookie = cookie_header(page)
    lines = [EventStream(site, cookie) for _ in range(live.USER_STREAMS_MAX)]
    try:
        assert [line.read_start() for line in lines] == [STREAM_START] * live.USER_STREAMS_MAX
        assert EventStream(site, cookie).read_rest() == REJECTED_EVENT
        messages: list[str] = []
        page.on("console", lambda message: messages.append(message.text))
        with page.expect_response("**/live?**") as response_info:
            assert page.goto(f"{TEAM}/messages").status == 200
        assert response_info.value.status == 200
        expect(page.locator("h1")).to_have_text("Messages")
        expect(page.locator(".pulse")).to_have_text("")
        assert messages == []
    finally:
        for line in lines:
            line.close()
    until(lambda: EventStream(site, cookie).read_start() == STREAM_START)
