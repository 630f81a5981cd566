"""Compatibility API for Postmark, bounces: mail that bounced, failed or was complained about.

Activating a bounce removes the suppression.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import reduce
from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.postmark.codec import COUNT_MAX, STREAM, check_stream, read_page, read_query, time_range
from heliograph.domain.events import StoredEvent
from heliograph.domain.ids import ulid
from heliograph.domain.limits import DAY_MS
from heliograph.domain.mail.address import parse_address
from heliograph.domain.refusals import MessageNotFound, SuppressionNotFound
from heliograph.domain.text import parse_int
from heliograph.manage import suppressions
from heliograph.storage.events import NEWEST
from heliograph.storage.stats import StateCounts
from heliograph.web.request import Response
from heliograph.web.route import json_response
from heliograph.webhooks.policy.formats.formats import CANCELED
from heliograph.webhooks.policy.formats.postmark import (
    HARD_BOUNCE,
    SOFT_BOUNCE,
    SPAM_COMPLAINT,
    bounce_number,
    bounce_record,
    bounce_second,
)

BOUNCE_EVENTS = ("email.bounced", "email.complained", "email.failed")
NOT_FOUND_CODE = 407
BATCHES_MAX = 20  # maximum batches of events that are searched for one page
INACTIVE_COUNT_MAX = 1_000  # inactive addresses are counted only up to this number


class Bounce(msgspec.Struct, frozen=True):
    event: StoredEvent
    inactive: bool  # the address is on the suppression list at the moment

    def to_json(self, call: Call) -> dict[str, Any]:
        return bounce_record(self.event, call.caller.team) | {"Inactive": self.inactive, "CanActivate": self.inactive}


async def list_all(call: Call) -> Response:
    query = read_query(call)
    check_stream(query.get("messagestream", STREAM))
    bounces, total = await read_page(query, _bounce_batches(call, NEWEST), _make_filter(call, query))
    return json_response({"TotalCount": total, "Bounces": [bounce.to_json(call) for bounce in bounces]})


async def read(call: Call) -> Response:
    return json_response((await _find_bounce(call)).to_json(call))


async def read_source(call: Call) -> Response:
    """Return an empty source, as Postmark does for expired sources: sources are not stored."""
    await _find_bounce(call)
    return json_response({"Body": ""})


async def activate(call: Call) -> Response:
    bounce = await _find_bounce(call)
    if bounce.inactive:
        try:
            team = call.caller.team.record
            await suppressions.remove(call.context.store, call.actor, team, bounce.event.recipient or "")
        except SuppressionNotFound:  # already removed by another request
            pass
    return json_response({"Message": "OK", "Bounce": Bounce(bounce.event, False).to_json(call)})


async def count(call: Call) -> Response:
    """Return the number of bounces by type, from all stored statistics, and the number of inactive addresses."""
    store = call.context.store
    counts_by_channel = (await store.stats.overview(call.team, 0, DAY_MS, ())).counts
    email_counts = (counts for (_, channel), counts in counts_by_channel.items() if channel == "email")
    email = reduce(StateCounts.plus, email_counts, StateCounts())
    inactive = await store.suppressions.list_page(call.team, None, INACTIVE_COUNT_MAX)
    totals = ((HARD_BOUNCE, email.bounced), (SOFT_BOUNCE, email.failed), (SPAM_COMPLAINT, email.complained))
    by_type = [{"Name": name, "Type": type_, "Count": number} for (type_, _, name, _), number in totals if number]
    all_types = {"Name": "All", "Count": sum(number for _, number in totals)}
    return json_response({"InactiveMails": min(len(inactive), INACTIVE_COUNT_MAX), "Bounces": [all_types, *by_type]})


async def _bounce_batches(call: Call, before: str) -> AsyncIterator[list[Bounce]]:
    """Yield batches of bounces, newest first."""
    store = call.context.store
    for _ in range(BATCHES_MAX):
        page = await store.events.newest(call.team, BOUNCE_EVENTS, before, COUNT_MAX)
        events = [event for event in page.events if event.record and _failure_reason(event) != CANCELED]
        suppressed = await store.suppressions.find_statuses(call.team, {_normalized_address(event) for event in events})
        yield [Bounce(event, _normalized_address(event) in suppressed) for event in events]
        if page.before is None:
            return
        before = page.before


async def _find_bounce(call: Call) -> Bounce:
    """Return the bounce whose number is in the path; search only the second of time that the number contains."""
    number = parse_int(call.params["id"], 16) or 0
    second = bounce_second(number)
    async for batch in _bounce_batches(call, "evt_" + ulid((second + 1) * 1000, 0)):
        for bounce in batch:
            if bounce_number(bounce.event.id) == number:
                return bounce
        if not batch or bounce_second(bounce_number(batch[-1].event.id)) < second:
            break
    raise MessageNotFound(f"No bounce {call.params['id'][:80]!r}.", param="id", details={"code": NOT_FOUND_CODE})


def _make_filter(call: Call, query: Mapping[str, str]) -> Callable[[Bounce], bool]:
    email, (after, before) = query.get("emailfilter", "").lower(), time_range(query)
    names = {"type": "Type", "tag": "Tag", "messageid": "MessageID", "inactive": "Inactive"}
    filters = {field: query[name].lower() for name, field in names.items() if name in query}

    def matches(bounce: Bounce) -> bool:
        if not after < bounce.event.created_at < before or email not in (bounce.event.recipient or "").lower():
            return False
        fields = bounce.to_json(call) if filters else {}
        return all(str(fields.get(name, "")).lower() == text for name, text in filters.items())

    return matches


def _normalized_address(event: StoredEvent) -> str:
    address = parse_address(event.recipient or "")
    return address.normal if address else ""


def _failure_reason(event: StoredEvent) -> str | None:
    return msgspec.json.decode(event.detail).get("reason") if event.status == "failed" and event.detail else None
