"""Content of a message's page: status of each recipient with its reason, and whether to resend. Pure functions."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from heliograph.accept.resend import UNREACHED_STATUSES
from heliograph.domain.delivery.magic_recipients import is_magic
from heliograph.domain.events import EXPIRED, NEXT_AT, SIMULATED, is_simulated
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.mail.address import parse_address
from heliograph.storage.search.message_search import MessageDetails, RecipientDetails, TimelineEvent
from heliograph.storage.suppressions import SuppressionStatus
from heliograph.texts.explain import CAUSES, SIDE_LABELS, Explanation, deciding_detail, explain

# fields of an event's detail that the page shows elsewhere
DETAILS_SHOWN_ELSEWHERE = {
    *("host", "address", "carrier", "code", "enhanced", "text", "said", "duration_ms", "reason", "state", "err"),
    *(SIMULATED, NEXT_AT, EXPIRED),
}

SuppressionByAddress = Mapping[str, SuppressionStatus]  # normalized address → status


class EventText(msgspec.Struct, frozen=True, kw_only=True):
    """Text of an event: the reply of a remote server, or ours."""

    text: str
    source: str  # host or carrier that was contacted
    address: str
    is_remote_reply: bool  # False: the text is our own


class BlockedBy(msgspec.Struct, frozen=True, kw_only=True):
    """An unreachable carrier for which messages wait."""

    id: str
    name: str  # display name of the carrier
    since: int  # time in ms since when the carrier is unreachable
    waiting_count: int  # number of the team's messages that wait for the carrier, including this message


class RecipientPageView(msgspec.Struct, frozen=True, kw_only=True):
    """Status of one recipient, as shown on the page."""

    recipient: RecipientDetails
    explanation: Explanation
    reply: EventText | None  # text of the event that decided the status
    at: int  # time of the event that decided the status
    next_at: int | None  # time of the next attempt
    simulated: bool
    suppression: SuppressionStatus | None  # None unless the address is on the suppression list now
    blocked_by: BlockedBy | None
    steps: list[dict[str, Any]]

    @property
    def side(self) -> str:
        return SIDE_LABELS["carrier"] if self.blocked_by else self.explanation.side_label

    @property
    def title(self) -> str:
        carrier = self.blocked_by
        return f"Waiting for our {carrier.name} {carrier.id}" if carrier else self.explanation.title

    @property
    def is_unreached(self) -> bool:
        return self.recipient.status in UNREACHED_STATUSES


def build_recipient_views(
    message: MessageDetails, suppressions: SuppressionByAddress, *, paused: bool, blocked_by: BlockedBy | None = None
) -> list[RecipientPageView]:
    """Return a view of each recipient. `suppressions`: suppression list entries by normalized address."""
    return [_build_view(message, recipient, suppressions, paused, blocked_by) for recipient in message.recipients]


def _build_view(
    message: MessageDetails,
    recipient: RecipientDetails,
    suppressions: SuppressionByAddress,
    paused: bool,
    blocked_by: BlockedBy | None,
) -> RecipientPageView:
    events = [event for event in message.events if event.recipient == recipient.given]
    last_event = next((event for event in reversed(events) if event.type != "ignored"), None)
    recipient_detail = _decode_detail(recipient.detail)
    detail, is_deferred = deciding_detail(
        recipient_detail,
        last_event.type if last_event else "",
        _decode_detail(last_event.detail if last_event else None),
    )
    explanation = explain(message.row.channel, recipient.status, detail, deferred=is_deferred, paused=paused)
    address = parse_address(recipient.given) if message.row.channel == "email" else None
    return RecipientPageView(
        recipient=recipient,
        explanation=explanation,
        reply=event_text(detail) if detail.get("text") else None,
        at=recipient.updated_at,
        next_at=parse_timestamp(str(detail.get(NEXT_AT))) if is_deferred and NEXT_AT in detail else None,
        simulated=any(is_simulated(event.detail) for event in events),
        suppression=suppressions.get(address.normal) if address else None,
        blocked_by=None
        if paused or explanation.style != "wait" or is_magic(recipient.given) or _is_recipient_side(explanation)
        else blocked_by,
        steps=_timeline_steps(message, events),
    )


def _is_recipient_side(explanation: Explanation) -> bool:
    return bool(explanation.cause) and CAUSES[explanation.cause].side == "theirs"


def normalized_addresses(message: MessageDetails) -> list[str]:
    """Return the normalized email addresses of the message's recipients, to look them up in the suppression list."""
    if message.row.channel != "email":
        return []
    return [address.normal for recipient in message.recipients if (address := parse_address(recipient.given))]


def event_text(detail: Mapping[str, Any]) -> EventText:
    """Return the text of a reply with its code. `err` and `state` are fields of a delivery receipt."""
    text = str(detail.get("said") or detail.get("text") or "")
    codes = [str(detail[name]) for name in ("code", "enhanced", "state") if detail.get(name) is not None]
    reply = " ".join([*(code for code in codes if code not in text), text])
    if detail.get("err"):
        reply = f"{reply} (err {detail['err']})"
    return EventText(
        text=reply.strip(),
        source=str(detail.get("host") or detail.get("carrier") or ""),
        address=str(detail.get("address") or ""),
        is_remote_reply=bool(codes) and "reason" not in detail,
    )


def _timeline_steps(message: MessageDetails, events: Sequence[TimelineEvent]) -> list[dict[str, Any]]:
    """Return the steps of the timeline. If one reply caused several steps, only the last one shows its text."""
    steps = [_timeline_step(message, event) for event in events]
    for step, next_step in pairwise(steps):
        step["repeats"] = (step["reply"], step["at"]) == (next_step["reply"], next_step["at"])
    return steps


def _timeline_step(message: MessageDetails, event: TimelineEvent) -> dict[str, Any]:
    detail = _decode_detail(event.detail)
    return {
        "id": event.id,
        "at": event.created_at,
        "status": event.status if event.sequence is not None else event.type,
        "reported_status": event.status if event.type == "ignored" else None,
        "reply": event_text(detail),
        "duration_ms": detail.get("duration_ms"),
        "next_at": parse_timestamp(str(detail[NEXT_AT])) if NEXT_AT in detail else None,
        "details": [
            (name, _detail_text(value))
            for name, value in detail.items()
            if name not in DETAILS_SHOWN_ELSEWHERE and value is not None
        ],
        "repeats": False,
        "deliveries": message.deliveries.get(event.id, []),
    }


def _decode_detail(detail: str | None) -> dict[str, Any]:
    return msgspec.json.decode(detail, type=dict[str, Any]) if detail else {}


def _detail_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class ResendAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a message can be resent, and whether this would help."""

    is_possible: bool = False
    may_succeed: bool = False
    # addresses on the suppression list, because of which a send would be refused
    suppressed_addresses: tuple[str, ...] = ()
    reason: str = ""  # why resending would not help


def resend_advice(views: Sequence[RecipientPageView]) -> ResendAdvice:
    """Return whether to offer resending the message to the recipients that did not get it."""
    unreached = [view for view in views if view.is_unreached]
    if not any(view.recipient.kind == "to" for view in unreached):
        return ResendAdvice()
    suppressed_addresses = tuple(
        view.recipient.given for view in unreached if view.suppression and view.recipient.kind != "bcc"
    )
    reasons = [view.explanation.text for view in unreached if not view.explanation.retry_helps]
    return ResendAdvice(
        is_possible=True,
        may_succeed=len(reasons) < len(unreached),
        suppressed_addresses=suppressed_addresses,
        reason="".join(reasons[:1]),
    )


def summarize(views: Sequence[RecipientPageView]) -> str:
    """Return one sentence that summarizes several recipients."""
    count = len(views)
    unreached = sum(view.is_unreached for view in views)
    pending_count = sum(view.explanation.style in ("wait", "info") for view in views)
    if unreached:
        return f"{unreached} of {count} recipients did not get this message."
    if pending_count:
        return f"{pending_count} of {count} recipients are still pending."
    return f"All {count} recipients got this message."
