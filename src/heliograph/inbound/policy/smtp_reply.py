"""Classifies SMTP replies as accepted, bounced, failed or deferred (docs/internals/reliability.md, "SMTP retries")."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from heliograph.inbound.policy.bounce_classifier import blames_address, find_reason, is_domain_absent, normalize

# the last command sent; `body` is the mail, and `final` the dot after it
Verb = Literal["connect", "ehlo", "starttls", "auth", "rset", "mail", "rcpt", "data", "body", "final"]
# `absent`: bounced because the domain does not exist
Verdict = Literal["accepted", "bounced", "absent", "failed", "deferred"]

TEXT_MAX = 500  # maximum characters of a reply in the timeline
CLASSIFIED_MAX = 1200  # maximum characters classified, which takes at most 10 ms

# Before MAIL, an error is about the host, as in Postfix and Exim: another host or a later attempt may succeed.
_HOST_VERBS = frozenset[Verb]({"connect", "ehlo", "starttls", "auth", "rset"})
RECIPIENT_VERBS = frozenset[Verb]({"rcpt", "data", "body", "final"})

# Enhanced codes of a refusal because of the rate, as used by Google (4.7.28, 4.7.29) and Microsoft
RATE_CODES = ("4.7.28", "4.7.29", "4.7.508", "4.7.500")
# Phrases that mean a refusal because of the rate, even if the reply also names another reason, such as spam.
_RATE_PHRASE = re.compile(
    r"\btoo (?:many|fast|quick)|\b(?:unusual|unexpected|excessive) (?:rate|volume)|\bat a rate\b"
    r"|\brate ?limit exceeded|\bslow down|\bper (?:minute|hour|day)\b"
)
_CONNECTIONS_PHRASE = re.compile(
    r"\btoo many (?:\w+ ){0,3}(?:connections|sessions)\b"
    r"|\b(?:concurrent|simultaneous|parallel) (?:\w+ )?(?:connections|sessions)\b"
)
_NEVER_ABOUT_RATE = ("greylisted", "loop", "mailbox_full")

_REPLY_LINE = re.compile(rb"([2-5][0-9]{2})(?:[ -](.*))?", re.DOTALL)
_ENHANCED = re.compile(r"#?([245]\.[0-9]{1,3}\.[0-9]{1,3})(?![0-9.])")
_SIZE = re.compile("[0-9]{1,18}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffd]+")


class Reply(msgspec.Struct, frozen=True):
    code: int
    lines: tuple[str, ...]  # lines without the reply code

    @property
    def enhanced(self) -> str | None:
        match = _ENHANCED.match(self.lines[-1]) or _ENHANCED.match(self.lines[0])
        return match[1] if match else None

    @property
    def text(self) -> str:
        """Return the reply on one line. An enhanced code repeated on each line appears once."""
        enhanced = self.enhanced or ""
        texts = [line.removeprefix(enhanced).strip() if n else line for n, line in enumerate(self.lines)]
        return " ".join([str(self.code), *filter(None, texts)])[:TEXT_MAX]


def read_reply(lines: Sequence[bytes]) -> Reply | None:
    """Parse an SMTP reply; None if a line is invalid.

    The code is that of the last line. Unprintable characters are replaced.
    """
    texts = tuple([text for line in lines if (text := _decode_line(line)) is not None])
    return Reply(int(lines[-1][:3]), texts) if texts and len(texts) == len(lines) else None


@lru_cache(maxsize=256)  # a server sends the same reply for nearly every mail
def _decode_line(line: bytes) -> str | None:
    match = _REPLY_LINE.fullmatch(line)
    return _UNPRINTABLE.sub("?", (match[2] or b"").decode("utf-8", "replace")).strip() if match else None


def classify_reply(reply: Reply, verb: Verb) -> Verdict:
    """Return what the reply to the command `verb` means for the message."""
    success_class = 3 if verb == "data" else 2
    match reply.code // 100:
        case reply_class if reply_class == success_class and verb != "body":
            return "accepted"
        case 5 if verb not in _HOST_VERBS:
            reason = find_reason(" ".join(reply.lines)[:CLASSIFIED_MAX])
            if verb not in RECIPIENT_VERBS or not blames_address(reason, reply.enhanced):
                return "failed"
            return "absent" if is_domain_absent(reason, reply.enhanced) else "bounced"
        case _:  # 4xx, and unexpected codes
            return "deferred"


def pauses_host(detail: Mapping[str, Any]) -> bool:
    """Return whether the code is 421, by which a server closes the connection for all messages (RFC 5321, 3.8)."""
    return detail.get("code") == "421"


def is_rate_refusal(detail: Mapping[str, Any]) -> bool:
    """Return whether the reply is a temporary refusal because of too many messages or connections."""
    if not str(detail.get("code") or "").startswith("4"):
        return False
    text = str(detail.get("text") or "")[:CLASSIFIED_MAX]
    reason = find_reason(text)
    if detail.get("enhanced") in RATE_CODES or (reason and reason.name == "rate"):
        return True
    return bool(_RATE_PHRASE.search(normalize(text))) and not (reason and reason.name in _NEVER_ABOUT_RATE)


def is_connection_refusal(detail: Mapping[str, Any]) -> bool:
    """Return whether the reply is a temporary refusal because too many connections are open at once."""
    text = normalize(str(detail.get("text") or "")[:CLASSIFIED_MAX])
    return bool(_CONNECTIONS_PHRASE.search(text)) and is_rate_refusal(detail)


def read_size(parameter: str) -> int:
    """Return the server's maximum message size in octets (RFC 1870); 0 if it has none."""
    match = _SIZE.match(parameter)
    return int(match[0]) if match else 0
