"""Live pages: what happens appears on open pages, at a bounded cost, for those who may look, and disturbs nobody."""

import asyncio
import http.client
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.dashboard import live
from heliograph.dashboard.live import AGAIN, BEGIN, CHANGED, FULL, OVER, Follower, Live, Pulse, Watch
from heliograph.storage.engine.database import StoreUnavailable
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.service import PATIENCE_S, until

expect = sync_api.expect
TEAM = "/dashboard/teams/team_acme"
OWNER = ("--team", "team_acme", "--role", "owner")


# -- when a page is told ---------------------------------------------------------------------------------------


def run(story: Coroutine[Any, Any, None]) -> None:
    """In a thread of its own: the browser of other tests leaves a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, asyncio.wait_for(story, PATIENCE_S)).result()


class Shown:
    """What a page shows, how often it was looked at, and what comes next."""

    def __init__(self, *words: str, every_s: float = 2.0) -> None:
        self.words, self.looks = list(words), 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.watch = Watch(key=("shown",), read=self.read, parts=("a",), every_s=every_s)

    async def read(self) -> Pulse | None:
        self.looks += 1
        await self.go_on.wait()
        word = self.words.pop(0) if len(self.words) > 1 else self.words[0]
        if word == "down":
            raise StoreUnavailable
        return None if word == "gone" else Pulse({"a": word, "b": "not shown"}, over=word == "end")


class Who:
    def __init__(self) -> None:
        self.may, self.draining = True, False
        self.follower = Follower(key=("who",), may=self.look, draining=lambda: self.draining, person="ada", team="acme")

    async def look(self) -> bool:
        return self.may


async def heard(stream: AsyncIterator[bytes]) -> list[bytes]:
    return [one async for one in stream]


def test_pages_that_show_the_same_share_one_look() -> None:
    async def story() -> None:
        shown, who, place = Shown("1", every_s=100), Who().follower, Live()
        shown.go_on.clear()
        streams = [place.changes(shown.watch, who, "0") for _ in range(2)]
        for stream in streams:
            assert await anext(stream) == BEGIN
        waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
        while not shown.looks:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert shown.looks == 1
        shown.go_on.set()
        assert [await one for one in waiting] == [CHANGED, CHANGED]
        late = place.changes(shown.watch, who, "0")
        assert [await anext(late), await anext(late)] == [BEGIN, CHANGED]
        assert await place.word(shown.watch) == "1"
        assert (shown.looks, place.streams) == (1, 3)
        for stream in (*streams, late):
            await stream.aclose()
        assert await place.word(shown.watch) == "1"  # nobody is left: the page that is made looks for itself
        assert (shown.looks, place.streams) == (2, 0)

    run(story())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["1", "gone"], [BEGIN, OVER]),
        (["2", "gone"], [BEGIN, CHANGED, OVER]),
        (["1", "2", "2", "3", "gone"], [BEGIN, CHANGED, CHANGED, OVER]),
        (["down", "2", "gone"], [BEGIN, CHANGED, OVER]),
        (["end"], [BEGIN, CHANGED, CHANGED, OVER]),  # once more, when webhooks were told
    ],
)
def test_what_a_stream_says(words: list[str], expected: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GAP_MAX_S", "TURN_S", "SETTLE_S"):
        monkeypatch.setattr(live, name, 0.01)

    async def story() -> None:
        shown = Shown(*words, every_s=0.01)
        assert await heard(Live().changes(shown.watch, Who().follower, "1")) == expected

    run(story())


def test_it_ends_for_those_who_may_no_longer_look_and_when_the_service_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "CHECK_S", 0.01)

    async def story() -> None:
        for name, word in (("may", OVER), ("draining", AGAIN)):
            who, place = Who(), Live()
            stream = place.changes(Shown("1", every_s=0.01).watch, who.follower, "1")
            assert await anext(stream) == BEGIN
            setattr(who, name, name == "draining")
            assert await heard(stream) == [word]
            assert place.streams == 0

    run(story())


def test_nobody_listens_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "OPEN_S", 0.05)

    async def story() -> None:
        assert await heard(Live().changes(Shown("1", every_s=0.01).watch, Who().follower, "1")) == [BEGIN, AGAIN]

    run(story())


@pytest.mark.parametrize(
    ("name", "fills", "free"),
    [
        ("PERSON_MOST", ("ada", "acme"), [("ada", "acme"), ("ada", "other"), ("ada", "")]),
        ("TEAM_MOST", ("{}", "acme"), [("bob", "acme")]),
        ("MOST", ("{}", "{}"), [("bob", "acme"), ("bob", "")]),
    ],
)
def test_nobody_takes_all_streams(name: str, fills: tuple[str, str], free: list[tuple[str, str]]) -> None:
    async def story() -> None:
        place, shown = Live(), Shown("1")

        def stream(person: str, team: str) -> AsyncIterator[bytes]:
            return place.changes(shown.watch, replace(Who().follower, person=person, team=team), "1")

        most = getattr(live, name)
        opened = [stream(fills[0].format(number), fills[1].format(number)) for number in range(most)]
        assert [await anext(one) for one in opened] == [BEGIN] * most
        for one in free:
            assert await heard(stream(*one)) == [FULL]
        if name != "MOST":
            assert await anext(stream("carol", "other")) == BEGIN
        await opened[0].aclose()  # type: ignore[attr-defined]
        assert await anext(stream(*free[0])) == BEGIN

    run(story())


def test_changes_that_never_stop_are_told_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps: list[float] = []

    async def look(_: Live, __: Any, read: Any, ___: float) -> Any:
        return await read()

    async def pause(_: Live, seconds: float, __: Follower) -> None:
        gaps.append(seconds)

    async def story() -> None:
        await heard(Live().changes(Shown("2", "3", "4", "5", "5", "gone").watch, Who().follower, "1"))

    monkeypatch.setattr(Live, "_look", look)
    monkeypatch.setattr(Live, "_pause", pause)
    monkeypatch.setattr(Live, "_wait_for_turn", lambda _: 0)
    run(story())
    assert [gap for gap in gaps if gap] == [3.0, 4.5, 5.0, 5.0, 2.0]


def test_pages_are_told_in_turns() -> None:
    async def story() -> None:
        place = Live()
        waits = [place._wait_for_turn() for _ in range(3)]
        assert waits[0] == 0
        assert waits[1] > 0.2
        assert waits[2] > 0.45

    run(story())


# -- in the browser --------------------------------------------------------------------------------------------


def send(site: Site, subject: str, to: str = "delivered@simulator.test") -> str:
    sent = site.service.post("/v1/emails", {"from": "hello@acme.test", "to": to, "subject": subject, "text": "Hello"})
    assert sent.status == 202, sent.raw
    return str(sent.json["id"])


def also(page: Any, path: str) -> Any:
    """Another tab of the same browser."""
    made = page.context.new_page()
    made.goto(path)
    return made


def watched(page: Any) -> Any:
    """Wait until it is live, and mark it: a page that was loaded anew has no mark."""
    expect(page.locator(".pulse")).to_have_text("Updating")
    page.evaluate("window.mark = 'kept'")
    return page


def is_kept(page: Any) -> bool:
    return bool(page.evaluate("window.mark === 'kept'"))


def test_a_message_appears_on_open_pages(site: Site, shoot: Shoot) -> None:
    send(site, "The first")
    pages = [site.open("live@example.com", *OWNER, path=f"{TEAM}/messages")]
    pages += [also(pages[0], path) for path in (TEAM, f"{TEAM}/inbox", f"{TEAM}/messages?q=wanted")]
    messages, overview, inbox, search = map(watched, pages)
    sent = overview.locator(".tiles .figure").first
    before = int(sent.inner_text())
    send(site, "Wanted at once")
    for page in (messages, inbox, search):
        expect(page.locator("tbody tr:not(.day)").first).to_contain_text("Wanted at once")
    for page in (messages, search):
        expect(page.locator("tbody .badge").first).to_have_text("Delivered")
    expect(sent).to_have_text(str(before + 1))
    expect(search.locator("tbody tr:not(.day)")).to_have_count(1)
    assert all(map(is_kept, pages))
    shoot(messages, "live-messages")
    shoot(overview, "live-overview")


def test_nothing_that_somebody_does_is_lost(site: Site) -> None:
    send(site, "Held fast")
    overview = watched(site.open("hold@example.com", *OWNER, path=TEAM))
    messages = watched(also(overview, f"{TEAM}/messages"))
    overview.get_by_label("To").fill("typed@example.com")
    overview.locator("main details").first.locator("summary").click()
    link = messages.get_by_role("link", name="Held fast").first
    link.focus()
    place = link.get_attribute("href")
    sent = overview.locator(".tiles .figure").first
    before = int(sent.inner_text())
    send(site, "Another one")
    expect(messages.locator("tbody tr:not(.day)").first).to_contain_text("Another one")
    assert messages.evaluate("document.activeElement.getAttribute('href')") == place
    expect(sent).to_have_text(str(before + 1))
    expect(overview.get_by_label("To")).to_have_value("typed@example.com")
    assert overview.locator("main details").first.get_attribute("open") is not None
    assert is_kept(messages)
    assert is_kept(overview)


def test_nothing_is_fetched_while_hidden(site: Site) -> None:
    hidden = watched(site.open("hide@example.com", *OWNER, path=f"{TEAM}/messages"))
    shown = watched(also(hidden, f"{TEAM}/messages"))
    asked: list[str] = []
    hidden.on("request", lambda request: asked.append(request.url))
    turn = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    turn += "document.dispatchEvent(new Event('visibilitychange'))"
    hidden.evaluate(turn % "true")
    expect(hidden.locator(".pulse")).to_have_text("")
    send(site, "Behind the curtain")
    expect(shown.locator("tbody tr:not(.day)").first).to_contain_text("Behind the curtain")
    expect(shown.locator("tbody .badge").first).to_have_text("Delivered")
    assert asked == []
    hidden.evaluate(turn % "false")
    expect(hidden.locator("tbody tr:not(.day)").first).to_contain_text("Behind the curtain")
    assert is_kept(hidden)


def test_a_failing_webhook_and_its_deliveries(site: Site) -> None:
    page = site.open("hook@example.com", *OWNER, path=f"{TEAM}/webhooks/new")
    page.get_by_label("Endpoint URL").fill("http://127.0.0.1:1/nobody")
    page.get_by_role("button", name="Create webhook").click()
    page.goto(f"{TEAM}/webhooks")
    page.get_by_role("link", name="/nobody").click()
    watched(page)
    page.get_by_text("A span of time").click()
    page.get_by_label("After (UTC)").fill("2026-01-01T00:00")
    send(site, "For the webhook")
    expect(page.locator("#deliveries tbody tr").filter(has_text="email.")).not_to_have_count(0)
    expect(page.locator("#health")).to_contain_text("Failing")
    expect(page.locator("#trouble")).to_contain_text("Events fail here")
    expect(page.get_by_label("After (UTC)")).to_have_value("2026-01-01T00:00")
    assert is_kept(page)


def test_verifications_and_queues(site: Site) -> None:
    operator = watched(site.open("queue@example.com", "--operator", path="/dashboard/operator/queues"))
    page = watched(also(operator, f"{TEAM}/verifications"))
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
    expect(operator.locator("#waiting")).to_contain_text("Nothing is waiting")
    assert is_kept(operator)
    assert is_kept(page)


def test_without_a_script_pages_are_as_they_were(site: Site) -> None:
    page = site.open("plain@example.com", *OWNER, path=TEAM, java_script_enabled=False)
    for path in ("", "/messages", "/inbox", "/verifications"):
        assert page.goto(TEAM + path).status == 200
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator(".pulse")).to_have_text("")


# -- for whom, and how many ------------------------------------------------------------------------------------


class Line:
    """One stream, read without a browser."""

    def __init__(self, site: Site, cookie: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", site.service.ports[-1], timeout=PATIENCE_S)
        self._connection.request("GET", f"{TEAM}/live?of=messages", headers={"Cookie": cookie})
        self.answer = self._connection.getresponse()

    def begins(self) -> bytes:
        return self.answer.read1()

    def rest(self) -> bytes:
        return self.answer.read()

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


def cookie_of(page: Any) -> str:
    return "; ".join(f"{one['name']}={one['value']}" for one in page.context.cookies())


def test_it_ends_with_the_session_and_with_the_role(site: Site) -> None:
    leaver = site.open("leaver@example.com", *OWNER, path="/dashboard/account")
    removed = site.open("removed@example.com", "--team", "team_acme", "--role", "viewer", path="/dashboard/account")
    lines = [Line(site, cookie_of(page)) for page in (leaver, removed)]
    assert [line.answer.status for line in lines] == [200, 200]
    leaver.goto(f"{TEAM}/team")
    leaver.get_by_label("More about removed@example.com").click()
    leaver.get_by_role("row").filter(has_text="removed@example.com").get_by_role("button", name="Remove").click()
    expect(leaver.locator(".flash")).to_contain_text("no longer here")
    leaver.locator("header .mine > summary").click()
    leaver.get_by_role("button", name="Sign out").click()
    leaver.wait_for_url("**/sign-in**")
    assert [line.rest().endswith(OVER) for line in lines] == [True, True]
    assert Line(site, cookie_of(leaver)).answer.status == 303
    assert Line(site, cookie_of(removed)).answer.status == 404


def test_streams_are_bounded_and_given_back(site: Site) -> None:
    page = site.open("many@example.com", *OWNER, path="/dashboard/account")
    cookie = cookie_of(page)
    lines = [Line(site, cookie) for _ in range(live.PERSON_MOST)]
    try:
        assert [line.begins() for line in lines] == [BEGIN] * live.PERSON_MOST
        assert Line(site, cookie).rest() == FULL
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        with page.expect_response("**/live?**") as asked:
            assert page.goto(f"{TEAM}/messages").status == 200
        assert asked.value.status == 200
        expect(page.locator("h1")).to_have_text("Messages")
        expect(page.locator(".pulse")).to_have_text("")
        assert said == []
    finally:
        for line in lines:
            line.close()
    until(lambda: Line(site, cookie).begins() == BEGIN)
