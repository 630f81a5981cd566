"""The two clients: one blocks, one is awaited; what they do is the same."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

import httpx2

from heliograph_client import resources
from heliograph_client._ask import Ask, Async, K, Sync, path
from heliograph_client.errors import HeliographError, NoAnswer, to_error
from heliograph_client.results import Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
Self = TypeVar("Self", bound="_Client[Any]")

FIRST_S, LONGEST_S = 0.5, 8.0  # between two attempts, doubling
PATIENCE_S = 120.0  # a longer Retry-After ends the retries at once


class Options(TypedDict, total=False):
    url: str | None
    timeout: float
    max_retries: int


class _Client(Generic[K]):
    def __init__(self, key: str | None, *, url: str | None = None, timeout: float = 30.0, max_retries: int = 2) -> None:
        key, url = key or os.environ.get("HELIOGRAPH_KEY"), url or os.environ.get("HELIOGRAPH_URL")
        if not key or not url:
            raise HeliographError("Pass key and url, or set HELIOGRAPH_KEY and HELIOGRAPH_URL.")
        if not key.isascii() or not key.isprintable():
            raise HeliographError("The key has characters that no key of Heliograph has: copy it again.")
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._timeout = timeout
        self._max_retries = max_retries
        self.emails: resources.Emails[K] = resources.Emails(self)
        self.sms: resources.Sms[K] = resources.Sms(self)
        self.whatsapp: resources.Whatsapp[K] = resources.Whatsapp(self)
        self.batches: resources.Batches[K] = resources.Batches(self)
        self.verify: resources.Verify[K] = resources.Verify(self)
        self.templates: resources.Templates[K] = resources.Templates(self)
        self.layouts: resources.Layouts[K] = resources.Layouts(self)
        self.inbox: resources.Inbox[K] = resources.Inbox(self)
        self.test_clock: resources.Clock[K] = resources.Clock(self)
        self.received: resources.Received[K] = resources.Received(self)
        self.suppressions: resources.Suppressions[K] = resources.Suppressions(self)
        self.opt_outs: resources.OptOuts[K] = resources.OptOuts(self)
        self.unsubscribes: resources.Unsubscribes[K] = resources.Unsubscribes(self)
        self.domains: resources.Domains[K] = resources.Domains(self)
        self.keys: resources.Keys[K] = resources.Keys(self)
        self.webhooks: resources.Webhooks[K] = resources.Webhooks(self)
        self.events: resources.Events[K] = resources.Events(self)
        self.approvals: resources.Approvals[K] = resources.Approvals(self)
        self.audit: resources.Audit[K] = resources.Audit(self)

    def _request(self, ask: Ask[Any]) -> dict[str, Any]:
        own = {"Idempotency-Key": ask.idempotency_key} if ask.idempotency_key else {}
        return {
            "method": ask.method,
            "url": self._url + ask.path,
            "params": dict(ask.query),
            "content": ask.content(),
            "headers": {**self._headers, **own},
            "timeout": self._timeout + ask.wait_s,
        }

    def _pause(self, ask: Ask[Any], tries: int, came: httpx2.Response | httpx2.TransportError) -> float:
        """Seconds until the next try; raises when there is none."""
        pause: float = min(FIRST_S * 2 ** (tries - 1), LONGEST_S) * (1 - 0.25 * random.random())
        if isinstance(came, httpx2.TransportError):
            # A POST without a key may have been carried out, unless it never arrived.
            unsent = isinstance(came, httpx2.ConnectError | httpx2.ConnectTimeout)
            if tries > self._max_retries or not (unsent or ask.method != "POST" or ask.idempotency_key):
                raise NoAnswer(f"{ask.method} {ask.path}: {came!r}") from came
            return pause
        wait = _retry_after(came.headers.get("Retry-After", ""))
        should = came.headers.get("Heliograph-Should-Retry")
        again = should == "true" if should else came.status_code in (408, 429) or came.status_code >= 500
        if tries > self._max_retries or not again or (wait or 0) > PATIENCE_S:
            raise to_error(_error_of(came), came.status_code, wait)
        return pause if wait is None else max(wait, pause)


def _error_of(response: httpx2.Response) -> Any:
    """What something between us and the service says is no error of ours."""
    try:
        return response.json()["error"]
    except (ValueError, KeyError, TypeError):
        return {"message": f"{response.status_code}: {response.text[:200]}"}


def _retry_after(text: str) -> float | None:
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(timezone.utc)).total_seconds())  # noqa: UP017 (3.10)
    except (TypeError, ValueError):
        return None


class Heliograph(_Client[Sync]):
    """`with Heliograph() as client: client.emails.send(to=…, subject=…, text=…)`."""

    def __init__(
        self, key: str | None = None, *, http_client: httpx2.Client | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(key, **options)
        self._http = http_client or httpx2.Client()

    def me(self) -> Result:
        """The team behind the key: mode, quota, credit."""
        return self._run(Ask(Result, "GET", path("me")))

    def close(self) -> None:
        self._http.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, ask: Ask[T]) -> T:
        for tries in count(1):
            try:
                came: httpx2.Response | httpx2.TransportError = self._http.request(**self._request(ask))
            except httpx2.TransportError as error:
                came = error
            if isinstance(came, httpx2.Response) and came.is_success:
                return ask.read(came.content if ask.is_file else came.json())
            time.sleep(self._pause(ask, tries, came))
        raise AssertionError

    def _pages(self, ask: Ask[T]) -> Iterator[T]:
        while True:
            page = self._run(ask.page())
            yield from map(ask.read, page["data"])
            ask = ask.next(page)
            if not page["has_more"]:
                if ask.poll_s is None:
                    return
                time.sleep(ask.poll_s)


class AsyncHeliograph(_Client[Async]):
    """`async with AsyncHeliograph() as client: await client.emails.send(to=…, subject=…, text=…)`."""

    def __init__(
        self, key: str | None = None, *, http_client: httpx2.AsyncClient | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(key, **options)
        self._http = http_client or httpx2.AsyncClient()

    async def me(self) -> Result:
        """The team behind the key: mode, quota, credit."""
        return await self._run(Ask(Result, "GET", path("me")))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, ask: Ask[T]) -> T:
        for tries in count(1):
            try:
                came: httpx2.Response | httpx2.TransportError = await self._http.request(**self._request(ask))
            except httpx2.TransportError as error:
                came = error
            if isinstance(came, httpx2.Response) and came.is_success:
                return ask.read(came.content if ask.is_file else came.json())
            await asyncio.sleep(self._pause(ask, tries, came))
        raise AssertionError

    async def _pages(self, ask: Ask[T]) -> AsyncIterator[T]:
        while True:
            page = await self._run(ask.page())
            for raw in page["data"]:
                yield ask.read(raw)
            ask = ask.next(page)
            if not page["has_more"]:
                if ask.poll_s is None:
                    return
                await asyncio.sleep(ask.poll_s)
