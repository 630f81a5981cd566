"""Renders a template's draft with the variables of its recent sends, to show what would change; sends nothing."""

import asyncio
from typing import Any

import msgspec

from heliograph.dashboard.page_request import PageRequest
from heliograph.dashboard.views.messages import build_rows
from heliograph.domain.delivery.content import CONTENT_TYPE_BY_CHANNEL, EmailContent, WhatsappContent
from heliograph.domain.limits import MIB
from heliograph.domain.mail.sender import brand_values
from heliograph.domain.setup.records import Template
from heliograph.storage.search.message_search import MessageRow, Search
from heliograph.templates.policy.render import estimate_octets
from heliograph.templates.policy.trial import Trial, try_draft
from heliograph.templates.policy.values import required_names
from heliograph.web.read_budget import run_large

SENDS_MAX = 50  # maximum recent messages that are rendered
OCTETS_MAX = 4 * MIB  # maximum octets of the messages' contents
TIME_MAX_S = 4.0  # no further message is rendered after this time
ORDER = ("fails", "grows", "changes", "same")


class TrialRow(msgspec.Struct, frozen=True, kw_only=True):
    """A sent message, and how the draft renders with its variables."""

    message: dict[str, Any]  # row of the message list
    trial: Trial


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    rows: list[TrialRow]  # failures first, without messages that stay the same
    counts: dict[str, int]  # result → number of messages
    skipped: int  # number of messages whose variables are not stored, or that were not reached in time


async def try_on_recent_sends(request: PageRequest, draft: Template) -> TrialReport:
    """Return how the draft would change its template's recent sends.

    At most SENDS_MAX messages, OCTETS_MAX bytes and TIME_MAX_S seconds are spent on this.
    """
    team, live = request.team.record.ref, request.team.templates[draft.id]
    search = Search(limit=SENDS_MAX, template_id=draft.id, channel=draft.channel)
    rows = list((await request.store.messages.search(team, search)).rows)
    loop = asyncio.get_running_loop()
    deadline, octets_left, tried = loop.time() + TIME_MAX_S, OCTETS_MAX, list[tuple[Any, Trial]]()
    for row in rows:
        if loop.time() > deadline or octets_left <= 0:
            break
        message = await request.store.messages.get_row(team, row.id, request.reserve_memory)
        if message is None or message.content is None:
            continue
        octets_left -= message.size
        trial = await run_large(message.size + estimate_octets(draft, ()), _render_trial, request, draft, live, message)
        if trial:
            tried.append((row, trial))
    different_rows = sorted(
        (item for item in tried if item[1].result != "same"), key=lambda item: ORDER.index(item[1].result)
    )
    messages = await build_rows(request, [row for row, _ in different_rows])
    return TrialReport(
        rows=[
            TrialRow(message=message, trial=trial) for message, (_, trial) in zip(messages, different_rows, strict=True)
        ],
        counts={result: sum(trial.result == result for _, trial in tried) for result in ORDER},
        skipped=len(rows) - len(tried),
    )


def _render_trial(request: PageRequest, draft: Template, live: Template, message: MessageRow) -> Trial | None:
    """Return how the draft renders with this message's variables; None if the variables are not stored."""
    content = msgspec.json.decode(message.content or "", type=CONTENT_TYPE_BY_CHANNEL[message.channel])
    if isinstance(content, WhatsappContent):
        is_same_list = len(live.variables) == len(content.parameters)
        variables: dict[str, Any] = dict(zip(live.variables, content.parameters, strict=True)) if is_same_list else {}
        variables = {name: value for name, value in variables.items() if not name.startswith("brand.")}
    else:
        variables = content.variables
    if not variables and any(name not in live.optional for name in required_names(live)):
        return None
    mail = content if isinstance(content, EmailContent) else None
    domain = request.team.domains.get(mail.from_address.rpartition("@")[2]) if mail else None
    return try_draft(
        draft,
        live,
        variables,
        locale=msgspec.json.decode(message.record).get("locale"),
        brand=brand_values(domain or next(iter(request.team.approved_domains), None), request.setup.platform),
        layouts=request.team.layouts,
        unsubscribe_url=mail.unsubscribe_url if mail else "",
        segmenting=request.team.record.segmenting,
    )
