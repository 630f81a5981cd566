"""A real service, and real browsers that are signed in to it."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service import PATIENCE_S, Service

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
sync_api.expect.set_options(timeout=PATIENCE_S * 1000)
PASSWORD = "correct horse battery"


@pytest.fixture(scope="session")
def chromium() -> Iterator[tuple[Any, Any]]:
    """One browser for all files, and its event loop. It starts as running, which async tests of other files could not
    bear: between the files that use it, it is put aside."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield started, loop
        asyncio._set_running_loop(loop)
        started.close()


@pytest.fixture(scope="module")
def browser(chromium: tuple[Any, Any]) -> Iterator[Any]:
    started, loop = chromium
    asyncio._set_running_loop(loop)
    yield started
    asyncio._set_running_loop(None)


class Site:
    """The service with people in it; `open` gives a page of a browser in which one of them is signed in."""

    def __init__(self, service: Service, browser: Any) -> None:
        self.service = service
        self._browser = browser
        self._contexts: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.service.ports[-1]}"

    def add(self, email: str, *options: str) -> str:
        """Somebody new; answers the link to begin with. Options as of `heliograph user add`."""
        done = self.service.run("user", "add", email, "--listen", self.url.removeprefix("http://"), *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def page(self, **options: Any) -> Any:
        """A page of a new browser that nobody is signed in to."""
        context = self._browser.new_context(base_url=self.url, **options)
        context.set_default_timeout(PATIENCE_S * 1000)
        self._contexts.append(context)
        made = context.new_page()
        made.on("pageerror", lambda error: pytest.fail(f"a script broke: {error}"))
        return made

    def open(self, email: str, *options: str, path: str = "/dashboard", **browser: Any) -> Any:
        """Add a person, sign in (without drawing the pages of it), and go to a page."""
        page = self.page(**browser)
        signed_in = page.request.post(self.add(email, *options), form={"password": PASSWORD}, max_redirects=0)
        assert signed_in.status == 303, signed_in.text()
        page.goto(path)
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        self._contexts.clear()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("site")
    with Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data") as service:
        service.apply()
        service.start()
        yield service


@pytest.fixture
def site(running: Service, browser: Any) -> Iterator[Site]:
    made = Site(running, browser)
    yield made
    made.close()


Shoot = Callable[[Any, str], None]


@pytest.fixture
def shoot() -> Shoot:
    """Keep a picture of a page where SCREENSHOTS names a folder; else do nothing."""
    folder = os.environ.get("SCREENSHOTS")

    def take(page: Any, name: str) -> None:
        if folder:
            page.screenshot(path=f"{folder}/{name}.png", full_page=True)

    return take
