"""Postmark's bounces: bounced, failed or complained mail; activating a bounce removes the suppression."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.postmark.codec import COUNT_MAX, STREAM, asked, check_stream, page_of, span
from heliograph.domain.events import StoredEvent
from heliograph.domain.ids import ulid
from heliograph.domain.limits import DAY_MS
from heliograph.domain.mail.address import parse_address
from heliograph.domain.refusals import MessageNotFound, SuppressionNotFound
from heliograph.domain.text import whole_number
from heliograph.manage import suppressions
from heliograph.storage.events import NEWEST
from heliograph.storage.stats import Reached
from heliograph.web.request import Response
from heliograph.web.route import answer
from heliograph.webhooks.policy.formats.formats import CANCELED
from heliograph.webhooks.policy.formats.postmark import HARD, SOFT, SPAM, bounce_number, bounced, second_of

TYPES = ("email.bounced", "email.complained", "email.failed")
NOT_FOUND = 407
SPANS = 20  # maximum batches of events searched for one page
INACTIVE_MOST = 1_000  # inactive addresses are counted up to this number


class Bounce(msgspec.Struct, frozen=True):
    event: StoredEvent
    inactive: bool  # the address is on the suppression list now

    def told(self, call: Call) -> dict[str, Any]:
        return bounced(self.event, call.caller.team) | {"Inactive": self.inactive, "CanActivate": self.inactive}


async def list_all(call: Call) -> Response:
    query = asked(call)
    check_stream(query.get("messagestream", STREAM))
    found, total = await page_of(query, _pages(call, NEWEST), _fits(call, query))
    return answer({"TotalCount": total, "Bounces": [bounce.told(call) for bounce in found]})


async def read(call: Call) -> Response:
    return answer((await _found(call)).told(call))


async def read_source(call: Call) -> Response:
    """Return an empty source, because sources are not stored; Postmark does the same for an expired source."""
    await _found(call)
    return answer({"Body": ""})


async def activate(call: Call) -> Response:
    found = await _found(call)
    if found.inactive:
        try:
            team = call.caller.team.record
            await suppressions.remove(call.context.store, call.actor, team, found.event.recipient or "")
        except SuppressionNotFound:  # removed concurrently
            pass
    return answer({"Message": "OK", "Bounce": Bounce(found.event, False).told(call)})


async def count(call: Call) -> Response:
    """Return the number of bounces by type, from all stored statistics, and the number of inactive addresses."""
    store = call.context.store
    figures = (await store.figures.overview(call.team, 0, DAY_MS, ())).figures
    mails = Reached()
    for (_, channel), reached in figures.items():
        mails = mails.plus(reached) if channel == "email" else mails
    inactive = await store.suppressions.page(call.team, None, INACTIVE_MOST)
    kinds = ((HARD, mails.bounced), (SOFT, mails.failed), (SPAM, mails.complained))
    told = [{"Name": name, "Type": type_, "Count": number} for (type_, _, name, _), number in kinds if number]
    everything = {"Name": "All", "Count": sum(number for _, number in kinds)}
    return answer({"InactiveMails": min(len(inactive), INACTIVE_MOST), "Bounces": [everything, *told]})


async def _pages(call: Call, before: str) -> AsyncIterator[list[Bounce]]:
    """Yield batches of bounces, newest first."""
    store = call.context.store
    for _ in range(SPANS):
        page = await store.events.newest(call.team, TYPES, before, COUNT_MAX)
        mails = [event for event in page.events if event.record and _reason(event) != CANCELED]
        listed = await store.suppressions.among(call.team, {_normal(event) for event in mails})
        yield [Bounce(event, _normal(event) in listed) for event in mails]
        if page.before is None:
            return
        before = page.before


async def _found(call: Call) -> Bounce:
    """Return the bounce with the number in the path. The number encodes its second; only this second is searched."""
    number = whole_number(call.params["id"], 16) or 0
    second = second_of(number)
    async for some in _pages(call, "evt_" + ulid((second + 1) * 1000, 0)):
        for bounce in some:
            if bounce_number(bounce.event.id) == number:
                return bounce
        if not some or second_of(bounce_number(some[-1].event.id)) < second:
            break
    raise MessageNotFound(f"No bounce {call.params['id'][:80]!r}.", param="id", details={"code": NOT_FOUND})


def _fits(call: Call, query: Mapping[str, str]) -> Callable[[Bounce], bool]:
    email, (after, before) = query.get("emailfilter", "").lower(), span(query)
    names = {"type": "Type", "tag": "Tag", "messageid": "MessageID", "inactive": "Inactive"}
    wanted = {theirs: query[name].lower() for name, theirs in names.items() if name in query}

    def fits(bounce: Bounce) -> bool:
        if not after < bounce.event.created_at < before or email not in (bounce.event.recipient or "").lower():
            return False
        told = bounce.told(call) if wanted else {}
        return all(str(told.get(name, "")).lower() == text for name, text in wanted.items())

    return fits


def _normal(event: StoredEvent) -> str:
    address = parse_address(event.recipient or "")
    return address.normal if address else ""


def _reason(event: StoredEvent) -> str | None:
    return msgspec.json.decode(event.detail).get("reason") if event.status == "failed" and event.detail else None
