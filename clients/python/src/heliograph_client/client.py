"""The clients: `Heliograph` blocks, `AsyncHeliograph` is awaited; both have the same methods."""

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
from heliograph_client._request import Async, K, Request, Sync, path
from heliograph_client.errors import HeliographError, NoAnswer, to_error
from heliograph_client.results import Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
Self = TypeVar("Self", bound="_Client[Any]")

RETRY_DELAY_S, RETRY_DELAY_MAX_S = 0.5, 8.0  # delay before the first retry; doubles up to the maximum
RETRY_AFTER_MAX_S = 120.0  # a request is not retried if Retry-After is longer


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

    def _http_arguments(self, request: Request[Any]) -> dict[str, Any]:
        key_header = {"Idempotency-Key": request.idempotency_key} if request.idempotency_key else {}
        return {
            "method": request.method,
            "url": self._url + request.path,
            "params": dict(request.query),
            "content": request.content(),
            "headers": {**self._headers, **key_header},
            "timeout": self._timeout + request.wait_s,
        }

    def _retry_delay_s(
        self, request: Request[Any], attempt: int, outcome: httpx2.Response | httpx2.TransportError
    ) -> float:
        """Return the seconds to wait before the next attempt; raise the error if the request must not be retried."""
        delay_s: float = min(RETRY_DELAY_S * 2 ** (attempt - 1), RETRY_DELAY_MAX_S) * (1 - 0.25 * random.random())
        if isinstance(outcome, httpx2.TransportError):
            # The service may have processed the request: without a key, a POST is repeated only if it was not sent
            unsent = isinstance(outcome, httpx2.ConnectError | httpx2.ConnectTimeout)
            if attempt > self._max_retries or not (unsent or request.method != "POST" or request.idempotency_key):
                raise NoAnswer(f"{request.method} {request.path}: {outcome!r}") from outcome
            return delay_s
        retry_after = _retry_after(outcome.headers.get("Retry-After", ""))
        should = outcome.headers.get("Heliograph-Should-Retry")
        is_retryable = should == "true" if should else outcome.status_code in (408, 429) or outcome.status_code >= 500
        if attempt > self._max_retries or not is_retryable or (retry_after or 0) > RETRY_AFTER_MAX_S:
            raise to_error(_error_of(outcome), outcome.status_code, retry_after)
        return delay_s if retry_after is None else max(retry_after, delay_s)


def _error_of(response: httpx2.Response) -> Any:
    """Return the error in a response; for a response of a proxy in another format, the beginning of its text."""
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
        """Return the key's team: mode, quota, credit."""
        return self._run(Request(Result, "GET", path("me")))

    def close(self) -> None:
        self._http.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, request: Request[T]) -> T:
        for attempt in count(1):
            try:
                outcome: httpx2.Response | httpx2.TransportError = self._http.request(**self._http_arguments(request))
            except httpx2.TransportError as error:
                outcome = error
            if isinstance(outcome, httpx2.Response) and outcome.is_success:
                return request.convert(outcome.content if request.is_file else outcome.json())
            time.sleep(self._retry_delay_s(request, attempt, outcome))
        raise AssertionError

    def _pages(self, request: Request[T]) -> Iterator[T]:
        while True:
            page = self._run(request.page())
            yield from map(request.convert, page["data"])
            request = request.next(page)
            if not page["has_more"]:
                if request.poll_s is None:
                    return
                time.sleep(request.poll_s)


class AsyncHeliograph(_Client[Async]):
    """`async with AsyncHeliograph() as client: await client.emails.send(to=…, subject=…, text=…)`."""

    def __init__(
        self, key: str | None = None, *, http_client: httpx2.AsyncClient | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(key, **options)
        self._http = http_client or httpx2.AsyncClient()

    async def me(self) -> Result:
        """Return the key's team: mode, quota, credit."""
        return await self._run(Request(Result, "GET", path("me")))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, request: Request[T]) -> T:
        for attempt in count(1):
            try:
                outcome: httpx2.Response | httpx2.TransportError = await self._http.request(
                    **self._http_arguments(request)
                )
            except httpx2.TransportError as error:
                outcome = error
            if isinstance(outcome, httpx2.Response) and outcome.is_success:
                return request.convert(outcome.content if request.is_file else outcome.json())
            await asyncio.sleep(self._retry_delay_s(request, attempt, outcome))
        raise AssertionError

    async def _pages(self, request: Request[T]) -> AsyncIterator[T]:
        while True:
            page = await self._run(request.page())
            for raw in page["data"]:
                yield request.convert(raw)
            request = request.next(page)
            if not page["has_more"]:
                if request.poll_s is None:
                    return
                await asyncio.sleep(request.poll_s)
