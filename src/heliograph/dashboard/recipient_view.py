"""View model of a message page: each recipient's status and reason, and whether to resend. Pure functions."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from heliograph.accept.resend import UNREACHED
from heliograph.domain.delivery.magic_recipients import is_magic
from heliograph.domain.events import EXPIRED, NEXT_AT, SIMULATED, is_simulated
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.mail.address import parse_address
from heliograph.storage.search.message_search import MessageDetails, RecipientLine, TimelineEvent
from heliograph.storage.suppressions import OnList
from heliograph.texts.explain import CAUSES, SIDES, Explanation, explain, last_words

# Fields of an event's detail that the page shows elsewhere.
SHOWN = {
    *("host", "address", "carrier", "code", "enhanced", "text", "said", "duration_ms", "reason", "state", "err"),
    *(SIMULATED, NEXT_AT, EXPIRED),
}

Suppressed = Mapping[str, OnList]  # keyed by normalized address


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """Text of one event: the reply of a remote server, or our own."""

    text: str
    where: str  # host or carrier that was contacted
    address: str
    replied: bool  # True if the text is the peer's reply, False if ours


class WaitedFor(msgspec.Struct, frozen=True, kw_only=True):
    """A carrier that is unreachable, so that messages wait for it."""

    id: str
    name: str  # display name of the carrier
    since: int
    waiting: int  # number of the team's waiting messages, including this one


class RecipientReading(msgspec.Struct, frozen=True, kw_only=True):
    """Status of one recipient, as shown on the page."""

    line: RecipientLine
    why: Explanation
    said: Words | None  # text of the deciding event
    at: int  # time of the deciding event
    next_at: int | None  # time of the next attempt
    simulated: bool
    suppressed: OnList | None  # current entry on the suppression list
    waits_for: WaitedFor | None
    steps: list[dict[str, Any]]

    @property
    def side(self) -> str:
        return SIDES["carrier"] if self.waits_for else self.why.side

    @property
    def title(self) -> str:
        held = self.waits_for
        return f"Waiting for our {held.name} {held.id}" if held else self.why.title

    @property
    def unreached(self) -> bool:
        return self.line.status in UNREACHED


def tell(
    found: MessageDetails, suppressed: Suppressed, *, paused: bool, waited: WaitedFor | None = None
) -> list[RecipientReading]:
    return [_tell(found, line, suppressed, paused, waited) for line in found.recipients]


def _tell(
    found: MessageDetails, line: RecipientLine, suppressed: Suppressed, paused: bool, waited: WaitedFor | None
) -> RecipientReading:
    events = [event for event in found.events if event.recipient == line.given]
    last = next((event for event in reversed(events) if event.type != "ignored"), None)
    own = _decoded(line.detail)
    detail, deferred = last_words(own, last.type if last else "", _decoded(last.detail if last else None))
    why = explain(found.facts.channel, line.status, detail, deferred=deferred, paused=paused)
    address = parse_address(line.given) if found.facts.channel == "email" else None
    return RecipientReading(
        line=line,
        why=why,
        said=said(detail) if detail.get("text") else None,
        at=line.updated_at,
        next_at=parse_timestamp(str(detail.get(NEXT_AT))) if deferred and NEXT_AT in detail else None,
        simulated=any(is_simulated(event.detail) for event in events),
        suppressed=suppressed.get(address.normal) if address else None,
        waits_for=None if paused or why.kind != "wait" or is_magic(line.given) or _is_theirs(why) else waited,
        steps=_steps(found, events),
    )


def _is_theirs(why: Explanation) -> bool:
    return bool(why.cause) and CAUSES[why.cause].side == "theirs"


def normal_addresses(found: MessageDetails) -> list[str]:
    """Return the normalized addresses that may be on the suppression list."""
    if found.facts.channel != "email":
        return []
    return [address.normal for line in found.recipients if (address := parse_address(line.given))]


def said(detail: Mapping[str, Any]) -> Words:
    """Return the reply text with its status code; `err` and `state` come from a delivery receipt."""
    text = str(detail.get("said") or detail.get("text") or "")
    known = [str(detail[name]) for name in ("code", "enhanced", "state") if detail.get(name) is not None]
    words = " ".join([*(code for code in known if code not in text), text])
    if detail.get("err"):
        words = f"{words} (err {detail['err']})"
    return Words(
        text=words.strip(),
        where=str(detail.get("host") or detail.get("carrier") or ""),
        address=str(detail.get("address") or ""),
        replied=bool(known) and "reason" not in detail,
    )


def _steps(found: MessageDetails, events: Sequence[TimelineEvent]) -> list[dict[str, Any]]:
    """Return the timeline steps. If one reply caused several states, only the last step shows its text."""
    steps = [_step(found, event) for event in events]
    for step, following in pairwise(steps):
        step["repeats"] = (step["said"], step["at"]) == (following["said"], following["at"])
    return steps


def _step(found: MessageDetails, event: TimelineEvent) -> dict[str, Any]:
    detail = _decoded(event.detail)
    return {
        "id": event.id,
        "at": event.created_at,
        "word": event.status if event.sequence is not None else event.type,
        "said_status": event.status if event.type == "ignored" else None,
        "said": said(detail),
        "took": detail.get("duration_ms"),
        "next_at": parse_timestamp(str(detail[NEXT_AT])) if NEXT_AT in detail else None,
        "more": [(name, _text(value)) for name, value in detail.items() if name not in SHOWN and value is not None],
        "repeats": False,
        "deliveries": found.deliveries.get(event.id, []),
    }


def _decoded(detail: str | None) -> dict[str, Any]:
    return msgspec.json.decode(detail, type=dict[str, Any]) if detail else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the message can be sent again, and whether resending would help."""

    possible: bool = False
    helps: bool = False
    blocked: tuple[str, ...] = ()  # addresses on the suppression list: a send would be refused
    why: str = ""  # why resending would not help


def again(told: Sequence[RecipientReading]) -> Again:
    unreached = [one for one in told if one.unreached]
    if not any(one.line.kind == "to" for one in unreached):
        return Again()
    blocked = tuple(one.line.given for one in unreached if one.suppressed and one.line.kind != "bcc")
    hopeless = [one.why.text for one in unreached if not one.why.again]
    return Again(possible=True, helps=len(hopeless) < len(unreached), blocked=blocked, why="".join(hopeless[:1]))


def summary(told: Sequence[RecipientReading]) -> str:
    """Return one sentence that summarizes several recipients."""
    count = len(told)
    missed = sum(one.unreached for one in told)
    moving = sum(one.why.kind in ("wait", "info") for one in told)
    if missed:
        return f"{missed} of {count} recipients did not get it."
    return f"{moving} of {count} recipients are still open." if moving else f"All {count} recipients got it."
