"""MTA-STS (RFC 8461): fetches and caches domains' policies, which name their mail exchangers and require TLS."""

import asyncio
import re
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal
from weakref import WeakValueDictionary

import msgspec

from heliograph.carriers.email.mx_lookup import BlockedAddress, MxResolver
from heliograph.carriers.http_client import RESPONSE_BYTES_MAX, CarrierHttp, CheckedAddresses, NoResponse, Unreachable
from heliograph.runtime.resolver import DnsTimeout, NameNotFound

MAX_AGE_S = 31_557_600  # one year, the limit of RFC 8461
FETCH_TIMEOUT_S = 30.0  # timeout of a fetch, during which the mail waits
FAILED_FETCH_RETRY_S = 300.0  # delay before a failed fetch is retried
CACHED_DOMAINS_MAX = 10_000

_TXT_RECORD = re.compile(r"v=STSv1\s*;(?:.*;)?\s*id=([A-Za-z0-9]{1,32})\s*(?:;.*)?")

Mode = Literal["enforce", "testing", "none"]
MODE_BY_NAME: dict[str, Mode] = {"enforce": "enforce", "testing": "testing", "none": "none"}

FetchPolicy = Callable[[str], Awaitable[str]]  # returns the text of a domain's policy file


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed MTA-STS policy."""

    mode: Mode
    max_age: int  # seconds
    mx: tuple[str, ...] = ()

    def allows(self, host: str) -> bool:
        """Return whether the policy names the host; a `*` matches exactly one label."""
        return host in self.mx or f"*.{host.partition('.')[2]}" in self.mx


class _CachedPolicy(msgspec.Struct, frozen=True):
    id: str
    policy: Policy | None  # None: the fetch failed
    expires_at: float


class PolicyCache:
    """Cache of MTA-STS policies. A policy is fetched when its published id changes, and expires after its max_age."""

    def __init__(self, resolver: MxResolver, fetch: FetchPolicy) -> None:
        self._resolver = resolver
        self._fetch = fetch
        self._cache: OrderedDict[str, _CachedPolicy] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def enforced_policy(self, domain: str) -> Policy | None:
        """Return the domain's policy if its mode is `enforce`, else None."""
        lock = self._locks.setdefault(domain, asyncio.Lock())
        async with lock:  # concurrent mails to one domain fetch its policy once
            policy = await self._policy(domain)
        return policy if policy and policy.mode == "enforce" else None

    async def _policy(self, domain: str) -> Policy | None:
        now = asyncio.get_running_loop().time()
        cached_entry = self._cache.get(domain)
        if cached_entry and cached_entry.expires_at <= now:
            cached_entry = None
        policy_id = await self._published_id(domain)
        if policy_id is None or (cached_entry and cached_entry.id == policy_id):
            return cached_entry.policy if cached_entry else None  # a cached policy stays valid without its DNS record
        fetched = await self._fetch_policy(domain)
        if fetched is None and cached_entry and cached_entry.policy:
            return cached_entry.policy
        lifetime_s = fetched.max_age if fetched else FAILED_FETCH_RETRY_S
        self._cache[domain] = _CachedPolicy(policy_id, fetched, now + lifetime_s)
        self._cache.move_to_end(domain)
        if len(self._cache) > CACHED_DOMAINS_MAX:
            self._cache.popitem(last=False)
        return fetched

    async def _published_id(self, domain: str) -> str | None:
        try:
            return parse_policy_id(await self._resolver.txt_values(f"_mta-sts.{domain}"))
        except DnsTimeout:
            return None

    async def _fetch_policy(self, domain: str) -> Policy | None:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                return parse_policy(await self._fetch(domain))
        except (OSError, ValueError, Unreachable, NoResponse, NameNotFound, DnsTimeout, BlockedAddress):
            return None


def parse_policy_id(texts: Sequence[str]) -> str | None:
    """Return the policy id from the TXT records of `_mta-sts`; None unless there is exactly one valid record."""
    records = [text for text in texts if text.startswith("v=STSv1")]
    match = _TXT_RECORD.fullmatch(records[0]) if len(records) == 1 else None
    return match[1] if match else None


def parse_policy(text: str) -> Policy:
    """Parse a policy file; raises ValueError if invalid."""
    pairs = [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in text.splitlines())]
    fields = dict(reversed(pairs))  # the first value of each field counts
    mode, max_age = MODE_BY_NAME.get(fields.get("mode", "")), fields.get("max_age", "")
    mx = tuple(value.lower().rstrip(".") for key, value in pairs if key == "mx")
    if fields.get("version") != "STSv1" or mode is None or not (max_age.isascii() and max_age.isdigit()):
        raise ValueError("not an MTA-STS policy")
    if mode != "none" and not mx:
        raise ValueError("an MTA-STS policy without a host")
    return Policy(mode=mode, max_age=min(int(max_age[:10]), MAX_AGE_S), mx=mx)


def https_policy_fetcher(resolver: MxResolver, roots: ssl.SSLContext, port: int = 443) -> FetchPolicy:
    """Return a function that fetches policies as required by RFC 8461, 3.3.

    The function verifies the host's certificate, follows no redirects, and requires text/plain of limited size.
    """

    async def fetch(domain: str) -> str:
        http = CarrierHttp(roots, connect_s=FETCH_TIMEOUT_S, resolver=CheckedAddresses(resolver.addresses))
        url = f"https://mta-sts.{domain}:{port}/.well-known/mta-sts.txt"
        try:
            response = await http.request("GET", url, headers={}, timeout_s=FETCH_TIMEOUT_S)
        finally:
            await http.close()
        content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status != 200 or content_type != "text/plain":
            raise ValueError("no policy file")
        if len(response.body) == RESPONSE_BYTES_MAX:
            raise ValueError("the policy file is too large")
        return response.body.decode()

    return fetch
