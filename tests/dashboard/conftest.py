"""A running service, and browsers (Playwright) signed in to it."""

import asyncio
import os
import random
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from heliograph.dashboard.page_request import SESSION_COOKIE
from tests.forks import Forked
from tests.people import let_in
from tests.service import PATIENCE_S, PROGRAM, Service

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
# The headless shell uses a quarter less CPU.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for name in BROWSERS if (path := shutil.which(name))), None)
sync_api.expect.set_options(timeout=PATIENCE_S * 1000)
DESKTOP, PHONE = {"width": 1280, "height": 720}, {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def chromium() -> Iterator[tuple[Any, Any]]:
    """Start one browser for all files.

    Its event loop counts as running, which async tests do not allow: it is suspended while no test uses a page.
    """
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        # There is no GPU, so a GPU process would only cost time.
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--in-process-gpu"])
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield started, loop
        asyncio._set_running_loop(loop)
        started.close()


class TabPool:
    """Pool of signed-out browser pages. A new browser context costs a second of CPU, a cleared one a
    twentieth, so contexts are reused per set of options."""

    def __init__(self, browser: Any, loop: Any) -> None:
        self._browser = browser
        self._loop = loop
        self._free: dict[str, list[Any]] = {}
        self._taken: list[tuple[str, Any]] = []

    def acquire(self, *, viewport: Any = DESKTOP, color_scheme: Any = "light", **options: Any) -> Any:
        asyncio._set_running_loop(self._loop)
        kind = repr(sorted(options.items()))
        page = free.pop() if (free := self._free.get(kind)) else self._open_page(**options)
        self._taken.append((kind, page))
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=color_scheme)
        dialogs = page.locator("dialog")  # each is confirmed unless a test removes this handler
        page.remove_locator_handler(dialogs)
        page.add_locator_handler(dialogs, lambda dialog: dialog.get_by_role("button").last.click())
        return page

    def _open_page(self, **options: Any) -> Any:
        context = self._browser.new_context(**options)
        context.set_default_timeout(PATIENCE_S * 1000)
        page = context.new_page()
        page.on("pageerror", lambda error: pytest.fail(f"a script broke: {error}"))
        page.on("dialog", lambda dialog: dialog.accept())  # of beforeunload
        return page

    def release(self) -> None:
        try:
            for kind, page in self._taken:
                for other in page.context.pages:
                    if other != page:
                        other.close()
                page.goto("about:blank")
                page.context.clear_cookies()
                page.context.clear_permissions()
                self._free.setdefault(kind, []).append(page)
        finally:
            self._taken.clear()
            asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def tabs(chromium: tuple[Any, Any]) -> TabPool:
    return TabPool(*chromium)


class Site:
    """A running service with users; `open` returns a browser page on which a new user is signed in."""

    def __init__(self, service: Service, tabs: TabPool) -> None:
        self.service = service
        self._tabs = tabs

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.service.ports[-1]}"

    def add(self, email: str, *options: str) -> str:
        """Add a user with the options of `heliograph user add`, and return the invitation link."""
        done = self.service.run("user", "add", email, "--listen", self.url.removeprefix("http://"), *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def page(self, **options: Any) -> Any:
        """Return a signed-out page. Script errors fail the test, and every dialog is accepted."""
        return self._tabs.acquire(base_url=self.url, **options)

    def open(self, email: str, *options: str, path: str = "/dashboard", **browser: Any) -> Any:
        """Add a user who has accepted the invitation and is signed in, and open a page."""
        self.add(email, *options)
        page = self.page(**browser)
        page.context.add_cookies([self.cookie(email)])
        page.goto(path)
        return page

    def cookie(self, email: str) -> Any:
        """Return the cookie of a new session of this user."""
        session = {"name": SESSION_COOKIE, "value": let_in(self.service.database, email), "domain": "127.0.0.1"}
        return session | {"path": "/dashboard", "httpOnly": True, "sameSite": "Lax"}


@pytest.fixture(scope="session")
def port() -> int:
    """Port of the service, outside the ephemeral range; all test files share it, so that pooled pages can be reused."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


@pytest.fixture(scope="module")
def site_settings(port: int) -> dict[str, Any]:
    """Additional settings of the service; modules override this fixture."""
    return {}


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, chromium: Any, port: int, site_settings: dict[str, Any]
) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("site")
    with Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data", **site_settings) as service:
        service.apply()
        service.start(port=port)
        yield service


@pytest.fixture
def site(running: Service, tabs: TabPool) -> Iterator[Site]:
    yield Site(running, tabs)
    tabs.release()


@contextmanager
def printed_link(folder: Path, command: str = "serve", **settings: str) -> Iterator[str]:
    """Run a command on an empty folder with only a free port configured, and return the first dashboard link
    that it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")} | settings
    process = Forked(PROGRAM, [command, "--listen", "127.0.0.1:0"], environment, folder)
    with process.stdout:
        try:
            matches = (re.search(r"http://\S+/dashboard/link/\S+", line) for line in process.stdout)
            yield next(link[0] for link in matches if link)
        finally:
            process.kill()
            process.wait()


Shoot = Callable[[Any, str], None]


@pytest.fixture
def shoot() -> Shoot:
    """Save a screenshot of a page to the folder in SCREENSHOTS; do nothing if it is not set."""
    folder = os.environ.get("SCREENSHOTS")

    def take(page: Any, name: str) -> None:
        if folder:
            page.screenshot(path=f"{folder}/{name}.png", full_page=True)

    return take


# elements beyond the right edge, text cut off without dots, and text that covers the next cell of its row; what
# scrolls, is drawn, or is only for those who hear the page is left out.
TOO_WIDE = """() => {
  const { scrollWidth, clientWidth } = document.documentElement;
  const wide = scrollWidth > clientWidth ? [`the page is ${scrollWidth} px wide`] : [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
  for (let text; (text = texts.nextNode());) {
    const own = text.parentElement;
    if (!text.data.trim() || !own.checkVisibility({ visibilityProperty: true })) continue;
    if (own.closest("svg, option, textarea, .unseen, .skip")) continue;
    range.selectNodeContents(text);
    const { left, right, width, top, bottom } = range.getBoundingClientRect();
    let edge = clientWidth, free = width < 2;
    for (let one = own; one && !free; one = one.parentElement) {
      const { overflowX, textOverflow, clipPath } = getComputedStyle(one), box = one.getBoundingClientRect();
      free = overflowX === "auto" || overflowX === "scroll" || textOverflow === "ellipsis" || clipPath !== "none";
      if (overflowX === "hidden" && box.right < edge) edge = box.right;
    }
    if (!free && (right > edge + 1 || left < -1))
      wide.push(`${own.tagName} ${own.className}: ${text.data.trim().slice(0, 60)}`);
    const cell = own.closest("td"), next = cell?.nextElementSibling?.getBoundingClientRect();
    const isCovered = next?.width && next.left < right - 1 && next.left > left && next.top < bottom - 1
      && next.bottom > top + 1;
    if (!free && isCovered)
      wide.push(`${own.tagName} ${own.className}: ${text.data.trim().slice(0, 60)} is in the next cell`);
  }
  return wide;
}"""


def find_overflow(page: Any, shoot: Shoot, name: str) -> list[str]:
    """Return the elements that overflow at desktop and at phone width; saves a screenshot of both."""
    viewport, overflowing = page.viewport_size, []
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        overflowing += [f"{page.url} at {size['width']}: {element}" for element in page.evaluate(TOO_WIDE)]
        shoot(page, f"{name}-{size['width']}")
    page.set_viewport_size(viewport)
    return overflowing


def assert_fits(page: Any, shoot: Shoot, name: str) -> None:
    assert find_overflow(page, shoot, name) == []
