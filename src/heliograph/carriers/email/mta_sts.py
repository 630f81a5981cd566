"""MTA-STS (RFC 8461): fetches and caches domains' policies on the names and TLS of their mail exchangers."""

import asyncio
import re
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal
from weakref import WeakValueDictionary

import msgspec

from heliograph.carriers.email.mx_lookup import Forbidden, Resolver
from heliograph.carriers.http_client import ANSWER_MAX, CheckedAddresses, NoAnswer, Unreachable, Web
from heliograph.runtime.resolver import DnsSilent, Unknown

MAX_AGE_S = 31_557_600  # one year, the limit of RFC 8461
FETCH_S = 30.0  # timeout of a fetch, during which the mail waits
AGAIN_S = 300.0  # delay before a failed fetch is retried
KEPT_MAX = 10_000  # cached domains

_RECORD = re.compile(r"v=STSv1\s*;(?:.*;)?\s*id=([A-Za-z0-9]{1,32})\s*(?:;.*)?")

Mode = Literal["enforce", "testing", "none"]
MODES: dict[str, Mode] = {"enforce": "enforce", "testing": "testing", "none": "none"}

Fetch = Callable[[str], Awaitable[str]]  # returns the text of a domain's policy file


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed MTA-STS policy."""

    mode: Mode
    max_age: int  # seconds
    mx: tuple[str, ...] = ()

    def allows(self, host: str) -> bool:
        """Return whether the policy names the host; a `*` matches exactly one label."""
        return host in self.mx or f"*.{host.partition('.')[2]}" in self.mx


class _Kept(msgspec.Struct, frozen=True):
    id: str
    policy: Policy | None  # None: the fetch failed
    until: float


class Policies:
    """Cache of MTA-STS policies; a policy is fetched when its published id changes, and kept for its max_age."""

    def __init__(self, resolver: Resolver, fetch: Fetch) -> None:
        self._resolver = resolver
        self._fetch = fetch
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def enforced(self, domain: str) -> Policy | None:
        """Return the domain's policy if its mode is `enforce`, else None."""
        lock = self._locks.setdefault(domain, asyncio.Lock())
        async with lock:  # concurrent mails to one domain fetch its policy once
            policy = await self._policy(domain)
        return policy if policy and policy.mode == "enforce" else None

    async def _policy(self, domain: str) -> Policy | None:
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(domain)
        if kept and kept.until <= now:
            kept = None
        id = await self._published_id(domain)
        if id is None or (kept and kept.id == id):
            return kept.policy if kept else None  # a cached policy stays valid without its DNS record
        fetched = await self._fetched(domain)
        if fetched is None and kept and kept.policy:
            return kept.policy
        seconds = fetched.max_age if fetched else AGAIN_S
        self._kept[domain] = _Kept(id, fetched, now + seconds)
        self._kept.move_to_end(domain)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return fetched

    async def _published_id(self, domain: str) -> str | None:
        try:
            return read_id(await self._resolver.texts(f"_mta-sts.{domain}"))
        except DnsSilent:
            return None

    async def _fetched(self, domain: str) -> Policy | None:
        try:
            async with asyncio.timeout(FETCH_S):
                return read_policy(await self._fetch(domain))
        except (OSError, ValueError, Unreachable, NoAnswer, Unknown, DnsSilent, Forbidden):
            return None


def read_id(texts: Sequence[str]) -> str | None:
    """Return the policy id from the TXT records of `_mta-sts`; None unless there is exactly one valid record."""
    records = [text for text in texts if text.startswith("v=STSv1")]
    found = _RECORD.fullmatch(records[0]) if len(records) == 1 else None
    return found[1] if found else None


def read_policy(text: str) -> Policy:
    """Parse a policy file; raises ValueError if invalid."""
    pairs = [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in text.splitlines())]
    fields = dict(reversed(pairs))  # the first value of each field counts
    mode, age = MODES.get(fields.get("mode", "")), fields.get("max_age", "")
    mx = tuple(value.lower().rstrip(".") for key, value in pairs if key == "mx")
    if fields.get("version") != "STSv1" or mode is None or not (age.isascii() and age.isdigit()):
        raise ValueError("not an MTA-STS policy")
    if mode != "none" and not mx:
        raise ValueError("an MTA-STS policy without a host")
    return Policy(mode=mode, max_age=min(int(age[:10]), MAX_AGE_S), mx=mx)


def https_fetch(resolver: Resolver, roots: ssl.SSLContext, port: int = 443) -> Fetch:
    """Return a function that fetches policies as required by RFC 8461, 3.3.

    It verifies the host's certificate, follows no redirects, and requires text/plain of limited size.
    """

    async def fetch(domain: str) -> str:
        web = Web(roots, connect_s=FETCH_S, resolver=CheckedAddresses(resolver.addresses))
        url = f"https://mta-sts.{domain}:{port}/.well-known/mta-sts.txt"
        try:
            answer = await web.ask("GET", url, headers={}, timeout_s=FETCH_S)
        finally:
            await web.close()
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status != 200 or kind != "text/plain":
            raise ValueError("no policy file")
        if len(answer.body) == ANSWER_MAX:
            raise ValueError("the policy file is too large")
        return answer.body.decode()

    return fetch
