"""Classification of SMTP replies: the effect of a reply on the message (reliability, SMTP retries)."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from heliograph.inbound.policy.bounce_classifier import blames_address, read_reason, says_absent

# The last command sent; `body` is the mail itself, `final` the dot after it.
Verb = Literal["connect", "ehlo", "starttls", "auth", "rset", "mail", "rcpt", "data", "body", "final"]
# `absent`: bounced because the domain does not exist.
Verdict = Literal["accepted", "bounced", "absent", "failed", "deferred"]

TEXT_MAX = 500  # characters of a reply kept in the timeline
WORDS_MAX = 1200  # characters of a reply that are classified: at most 10 ms on the event loop

# An error before MAIL is about the host, as in Postfix and Exim: another host or a later attempt may succeed.
_ABOUT_THE_HOST = frozenset[Verb]({"connect", "ehlo", "starttls", "auth", "rset"})
ABOUT_THE_RECIPIENT = frozenset[Verb]({"rcpt", "data", "body", "final"})

_LINE = re.compile(rb"([2-5][0-9]{2})(?:[ -](.*))?", re.DOTALL)
_ENHANCED = re.compile(r"#?([245]\.[0-9]{1,3}\.[0-9]{1,3})(?![0-9.])")
_SIZE = re.compile("[0-9]{1,18}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffd]+")


class Reply(msgspec.Struct, frozen=True):
    code: int
    lines: tuple[str, ...]  # lines without the reply code

    @property
    def enhanced(self) -> str | None:
        found = _ENHANCED.match(self.lines[-1]) or _ENHANCED.match(self.lines[0])
        return found[1] if found else None

    @property
    def text(self) -> str:
        """Return the reply on one line; an enhanced code repeated on every line is kept once."""
        enhanced = self.enhanced or ""
        words = [line.removeprefix(enhanced).strip() if n else line for n, line in enumerate(self.lines)]
        return " ".join([str(self.code), *filter(None, words)])[:TEXT_MAX]


def read_reply(lines: Sequence[bytes]) -> Reply | None:
    """Parse a reply, replacing unprintable characters; the last line's code counts. None if the lines are no reply."""
    words = tuple([word for line in lines if (word := _words(line)) is not None])
    return Reply(int(lines[-1][:3]), words) if words and len(words) == len(lines) else None


@lru_cache(maxsize=256)  # a server gives the same reply to nearly every mail
def _words(line: bytes) -> str | None:
    found = _LINE.fullmatch(line)
    return _UNPRINTABLE.sub("?", (found[2] or b"").decode("utf-8", "replace")).strip() if found else None


def verdict(reply: Reply, verb: Verb) -> Verdict:
    wanted = 3 if verb == "data" else 2
    match reply.code // 100:
        case kind if kind == wanted and verb != "body":
            return "accepted"
        case 5 if verb not in _ABOUT_THE_HOST:
            reason = read_reason(" ".join(reply.lines)[:WORDS_MAX])
            if verb not in ABOUT_THE_RECIPIENT or not blames_address(reason, reply.enhanced):
                return "failed"
            return "absent" if says_absent(reason, reply.enhanced) else "bounced"
        case _:  # 4xx, and unexpected codes
            return "deferred"


def pauses_host(detail: Mapping[str, Any]) -> bool:
    """Return whether the code is 421: the server is closing for all messages, not only this one (RFC 5321, 3.8)."""
    return detail.get("code") == "421"


def read_size(parameter: str) -> int:
    """Return the maximum message size in octets that a server announces (RFC 1870); 0 if it gives no limit."""
    found = _SIZE.match(parameter)
    return int(found[0]) if found else 0
