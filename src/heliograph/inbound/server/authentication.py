"""Sender authentication of inbound mail: SPF, DKIM and DMARC (RFC 9989), with five seconds for DNS."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

import msgspec

from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.mime_tree import FOREIGN, plain, read_head
from heliograph.domain.mail.smtp_to_request import read_addresses
from heliograph.inbound.policy.dkim_verification import ForeignSignature, signatures_in, verify
from heliograph.inbound.policy.inbound_mail import Authentication, Verdict
from heliograph.inbound.server.spf import Sending, check_spf
from heliograph.runtime.resolver import Ask, DnsSilent

WITHIN_S = 5.0  # time limit of the DNS lookups (contract 17)
_ORDER: tuple[Verdict, ...] = ("pass", "temperror", "fail", "permerror")
LABELS_MAX = 8  # labels, from the end of a name, that the DMARC tree walk queries

T = TypeVar("T")
Keys = dict[str, list[str] | None]  # TXT records by name; None if DNS did not respond


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """DNS results needed to authenticate a mail."""

    sending: Sending
    author: str  # domain of the From address; empty if there is none or several
    spf: Verdict
    keys: Keys
    policies: dict[str, str] | None  # DMARC records by name; None if DNS did not respond

    def judge(self, raw: bytes, now_s: int) -> Authentication:
        """Return the SPF, DKIM and DMARC results. Slow for large mails: call it in a thread."""
        signed = verify(raw, self.keys, now_s)
        passed = [domain for domain, verdict in signed.items() if verdict == "pass"]
        dkim: Verdict = next((one for one in _ORDER if one in signed.values()), "none")
        spf = [self.sending.domain] if self.spf == "pass" else []
        return Authentication(spf=self.spf, dkim=dkim, dmarc=self._dmarc(spf, passed, dkim))

    def _dmarc(self, spf: Sequence[str], dkim: Sequence[str], dkim_verdict: Verdict) -> Verdict:
        if not self.author:
            return "permerror"
        if self.policies is None:
            return "temperror"
        if not self.policies:
            return "none"
        around = min(self.policies, key=len)  # the organisational domain
        tags = _tags(self.policies[max(self.policies, key=len)])
        aligned = [*((one, tags.get("aspf", "r")) for one in spf), *((one, tags.get("adkim", "r")) for one in dkim)]
        if any(_is_aligned(domain, self.author, around, mode) for domain, mode in aligned):
            return "pass"
        return "temperror" if "temperror" in (self.spf, dkim_verdict) else "fail"


async def ask_about(sending: Sending, head: bytes, ask: Ask, within_s: float = WITHIN_S) -> Evidence:
    """Query DNS about a mail's sender. `head`: the beginning of the mail."""
    signatures, author = signatures_in(head), author_of(head)
    spf, keys, policies = await asyncio.gather(
        _in_time(check_spf(sending, ask), within_s),
        _in_time(_keys(signatures, ask), within_s),
        _in_time(_policies(author, ask), within_s),
    )
    return Evidence(
        sending=sending,
        author=author,
        spf=spf or "temperror",
        keys={one.key_name: None for one in signatures} if keys is None else keys,
        policies=policies,
    )


def author_of(head: bytes) -> str:
    """Return the domain of the only address in the From fields; empty if there is none or several.

    Lines may end in LF.
    """
    mail = plain(head)
    values = [value for name, value in read_head(mail, 1, len(mail), FOREIGN)[0] if name.lower() == "from"]
    found = [parse_address(address) for value in values for _, address in read_addresses(value)]
    return found[0].domain if len(found) == 1 and found[0] else ""


def _is_aligned(domain: str, author: str, around: str, mode: str) -> bool:
    return domain == author or (mode.lower() != "s" and f".{domain}".endswith(f".{around}"))


async def _policies(author: str, ask: Ask) -> dict[str, str]:
    """Return the DMARC records of the author's domain and its parents, except the top-level domain."""
    labels = author.split(".")[-LABELS_MAX:]
    names = dict.fromkeys([author, *(".".join(labels[i:]) for i in range(len(labels) - 1))]) if author else {}
    answers = await asyncio.gather(*(ask(f"_dmarc.{name}", "TXT") for name in names))
    found = {
        name: [text for text in texts if text.startswith("v=DMARC1")]
        for name, texts in zip(names, answers, strict=True)
    }
    return {name: texts[0] for name, texts in found.items() if len(texts) == 1 and _tags(texts[0]).get("psd") != "y"}


async def _keys(signatures: Sequence[ForeignSignature], ask: Ask) -> Keys:
    async def one(name: str) -> list[str] | None:
        try:
            return await ask(name, "TXT")
        except DnsSilent:
            return None

    names = list(dict.fromkeys(signature.key_name for signature in signatures if signature.key_name))
    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


async def _in_time(asking: Awaitable[T], within_s: float) -> T | None:
    try:
        async with asyncio.timeout(within_s):
            return await asking
    except (TimeoutError, DnsSilent):
        return None


def _tags(text: str) -> dict[str, str]:
    pairs = (one.partition("=") for one in text.split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}
