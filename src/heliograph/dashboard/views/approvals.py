"""Approval queue for operators: domains, display names, sender ids, templates and layouts of all teams."""

import hashlib
import re

from heliograph.changes import decisions
from heliograph.dashboard.audit_texts import actor_name, find_subject
from heliograph.dashboard.live import PageVersion, Subscription
from heliograph.dashboard.page_request import (
    Page,
    PageRequest,
    PageResponse,
    Redirect,
    field_errors,
    pending_approval_ids,
)
from heliograph.dashboard.views.live import open_stream
from heliograph.dashboard.views.template_form import form_values, is_free, price_fields
from heliograph.domain.ids import ulid_ms
from heliograph.domain.limits import DAY_MS
from heliograph.domain.mail.reputation import Counts, describe_rates
from heliograph.domain.mail.sender import default_brand_values, possible_brand_values
from heliograph.domain.phones.countries import country_name, country_names
from heliograph.domain.phones.gsm import Segments, count_segments
from heliograph.domain.refusals import BodyTooLong, InvalidRequest
from heliograph.domain.setup.records import Template
from heliograph.domain.setup.sender_approvals import PendingSender, pending_senders
from heliograph.domain.setup.undo_decision import RecordedDecision, list_reversible
from heliograph.domain.text import parse_int
from heliograph.manage import senders
from heliograph.storage.audit import NEWEST, AuditFilter
from heliograph.templates import layout_service as layouts
from heliograph.templates import service as templates
from heliograph.templates.policy import layout_drafts
from heliograph.templates.policy.bounds import Bounds, bounds_of
from heliograph.templates.policy.examples import example_values
from heliograph.templates.policy.render import render
from heliograph.templates.policy.template_approvals import list_pending, revision_of
from heliograph.templates.policy.template_edit import with_suggested_prices
from heliograph.texts.dashboard_links import OPERATOR

APPROVALS_PATH = f"{OPERATOR}/approvals"
KIND_LABELS = {
    "domain": "Domain",
    "display_name": "Display name",
    "sender_id": "SMS sender ID",
    "team": "Team name",
}
EXCERPT_CHARS = 400  # maximum characters shown of a template's text
PAGE_SIZE = 50  # decisions per page
LAYOUT_EXCERPT_CHARS = 4000  # maximum characters shown of a layout, which is on no other page
ULID_PATTERN = re.compile("[0-9A-HJKMNP-TV-Z]{26}")
LOOKUPS_MAX = 100  # maximum number of requesters with an address, and of teams with statistics, on the page
RATES_WINDOW_MS = 30 * DAY_MS
DECIDED_PATH = f"{APPROVALS_PATH}?tab=decided"
CHANGED_MEANWHILE = "This request was changed or decided in the meantime."


async def decide(request: PageRequest) -> PageResponse:
    """Approve or refuse the sender that the operator saw; without effect if it was changed since."""
    kind, id_, text = (request.form.get(name, "") for name in ("kind", "id", "text"))
    item = PendingSender(kind=kind, team=request.team.record.id, id=id_, text=text)
    approve, reason = request.form.get("approve") == "yes", request.form.get("reason", "")
    try:
        is_decided = await senders.decide_pending(request.store, request.actor, item, approve, reason)
    except InvalidRequest as refusal:
        return await _page(request, id_, {"reason": refusal.message})
    if not is_decided:
        return Redirect(APPROVALS_PATH, CHANGED_MEANWHILE)
    return Redirect(f"{APPROVALS_PATH}?decided=yes", _decision_notice(text, approve))


async def decide_template(request: PageRequest) -> PageResponse:
    """Approve the template with the prices entered in the form, or refuse it with the entered reason."""
    team, id_, form = request.team.record.id, request.params["template"], request.form
    revision, approve = form.get("mark", ""), form.get("approve") == "yes"
    try:
        if approve:
            prices = price_fields(form) if "price" in form else None
            await templates.approve(request.store, request.actor, team, id_, revision, prices, free=is_free(form))
        else:
            await templates.refuse(request.store, request.actor, team, id_, revision, form.get("reason", ""))
    except InvalidRequest as refusal:
        errors = field_errors(refusal)
        return await _page(
            request, id_, {name or ("reason" if not approve else "price"): message for name, message in errors.items()}
        )
    return Redirect(f"{APPROVALS_PATH}?decided=yes", _decision_notice(form.get("text", "The template"), approve))


async def decide_layout(request: PageRequest) -> PageResponse:
    id_, form = layouts.get(request.setup, request.team.record.id, request.params["layout"]).id, request.form
    revision, approve = form.get("mark", ""), form.get("approve") == "yes"
    try:
        if approve:
            await layouts.approve(request.store, request.actor, id_, revision)
        else:
            await layouts.refuse(request.store, request.actor, id_, revision, form.get("reason", ""))
    except InvalidRequest as refusal:
        return await _page(request, id_, {"reason": refusal.message})
    return Redirect(f"{APPROVALS_PATH}?decided=yes", _decision_notice(form.get("text", "The layout"), approve))


def _decision_notice(text: str, approve: bool) -> str:
    return f"Approved: {text}." if approve else f"Refused: {text}. The team can see the reason."


async def reopen(request: PageRequest) -> PageResponse:
    """Undo a decision, so that its subject waits for approval again."""
    form = request.form
    decision = RecordedDecision(
        team=request.team.record.id,
        kind=form.get("kind", ""),
        text=form.get("said", ""),
        approved=form.get("approved") == "yes",
    )
    is_reopened = await decisions.undo_decision(request.store, request.actor, decision)
    if not is_reopened:
        return Redirect(DECIDED_PATH, CHANGED_MEANWHILE)
    return Redirect(APPROVALS_PATH, "Decision undone. The request waits again.")


async def show(request: PageRequest) -> PageResponse:
    return await _decided_page(request) if request.query.get("tab") == "decided" else await _page(request)


async def _decided_page(request: PageRequest) -> Page:
    """List decisions, newest first. The latest decision about a subject can be undone if the decision is reversible."""
    before = parse_int(request.query.get("before", ""), 18)
    audit_page = await request.store.audit.list_page(
        None, AuditFilter(decisions=True), NEWEST if before is None else before, PAGE_SIZE
    )
    reversible = set(list_reversible(request.setup))
    rows = []
    for entry in audit_page.rows:
        kind, _, verb = entry.action.partition(".")
        decision = RecordedDecision(team=entry.team or "", kind=kind, text=entry.subject, approved=verb == "approve")
        rows.append(
            {
                "line": entry,
                "kind": KIND_LABELS.get(kind) or kind.capitalize(),
                "state": "approved" if decision.approved else "refused",
                "subject": find_subject(entry, request.setup, is_operator=True),
                "who": actor_name(entry, request.setup),
                "team": request.setup.teams.get(entry.team or ""),
                "decision": decision if decision in reversible else None,
            }
        )
        reversible.discard(decision)
    values = {
        "lines": rows,
        "newest": DECIDED_PATH if before is not None else "",
        "older": f"{DECIDED_PATH}&before={audit_page.after}" if audit_page.after else "",
    }
    return Page("decided.html", values)


async def live(request: PageRequest) -> PageResponse:
    """Stream changes of the number of pending requests, for the navigation; with `of=list`, of the requests."""

    async def read_version() -> PageVersion:
        return PageVersion({"count": str(request.pending_approvals), "list": _pending_hash(request)})

    part = "list" if request.query.get("of") == "list" else "count"
    return open_stream(request, Subscription(key=("approvals",), read_version=read_version, parts=(part,)))


def _pending_hash(request: PageRequest) -> str:
    return hashlib.sha256("\n".join(pending_approval_ids(request.setup)).encode()).hexdigest()[:16]


async def _page(request: PageRequest, failed_id: str = "", errors: dict[str, str] | None = None) -> Page:
    requested_senders, pending_templates = pending_senders(request.setup), list_pending(request.setup)
    offers = [(draft, with_suggested_prices(request.setup, draft.template)) for draft in pending_templates]
    requesters = sorted(
        {pending_item.asked_by for pending_item in requested_senders}
        | {draft.author or "" for draft in pending_templates}
    )
    accounts = [await request.store.people.get(id_) for id_ in requesters[:LOOKUPS_MAX] if id_.startswith("usr_")]
    team_ids = {pending_item.team for pending_item in requested_senders} | {
        draft.team.record.id for draft in pending_templates
    }
    ref_by_team = {
        id_: team.record.ref for id_ in sorted(team_ids)[:LOOKUPS_MAX] if (team := request.setup.teams.get(id_))
    }
    stats = (
        await request.store.stats.team_totals(ref_by_team.values(), request.context.clock.now() - RATES_WINDOW_MS)
        if ref_by_team
        else {}
    )
    values = {
        "live": f"{APPROVALS_PATH}/live?of=list&seen={_pending_hash(request)}" if request.http.method == "GET" else "",
        "senders": sorted(
            ((item, requested_at(item)) for item in requested_senders),
            key=lambda pending_item: pending_item[1] or request.context.clock.now(),
        ),
        "drafts": [
            (
                draft,
                offer,
                form_values(offer),
                _message_bounds(request, offer),
                _list_prices(request, offer),
                _example_segments(request, offer),
            )
            for draft, offer in offers
        ],
        "countries": country_names() if any(offer.channel != "email" for _, offer in offers) else {},
        "country_name": country_name,
        "priced": _priced_countries,
        "layouts": [(layout, revision_of(layout)) for layout in layout_drafts.list_pending(request.setup)],
        "kinds": KIND_LABELS,
        "excerpt": EXCERPT_CHARS,
        "layout_excerpt": LAYOUT_EXCERPT_CHARS,
        "teams": request.setup.teams,
        "rates": {
            id_: describe_rates(
                Counts(sends=team_stats.emails, bounces=team_stats.bounced, complaints=team_stats.complained)
            )
            for id_, ref in ref_by_team.items()
            if (team_stats := stats.get(ref))
        },
        "people": {person.id: person.email for person in accounts if person},
        "failed_id": failed_id,
        "form": request.form,
    }
    return Page.form("approvals.html", values, errors)


def requested_at(item: PendingSender) -> int | None:
    """Return the time of the request, which is part of a generated id.

    None for a change of an approved record, and for an id chosen in a setup file.
    """
    id_body = item.id.partition("_")[2]
    return ulid_ms(id_body) if not item.is_change and ULID_PATTERN.fullmatch(id_body) else None


def _list_prices(request: PageRequest, offer: Template) -> dict[str, int]:
    """Return the instance's prices by country (`*`: all others) for the template's channel and currency."""
    currency = request.setup.teams[offer.team].record.currency
    return request.setup.platform.prices.get(offer.channel, {}).get(currency, {})


def _priced_countries(offer: Template, list_prices: dict[str, int]) -> list[tuple[str, str]]:
    """Return (code, name) of the countries with a price in the template or the price list, sorted by name."""
    codes = (offer.prices.keys() | list_prices.keys()) - {"*"}
    return sorted(((code, country_name(code)) for code in codes), key=lambda country: country[1])


def _example_segments(request: PageRequest, offer: Template) -> tuple[Segments, int] | None:
    """Return the SMS segments of the template with its example values, and how many of them are billed."""
    if offer.channel != "sms":
        return None
    team = request.setup.teams[offer.team]
    try:
        rendered = render(offer, example_values(offer), default_brand_values(team, request.setup.platform))
    except BodyTooLong:
        return None
    segments = count_segments(rendered.body or "")
    return segments, segments.billed(team.record.segmenting)


def _message_bounds(request: PageRequest, offer: Template) -> Bounds | None:
    """Return the maximum size and cost of a message from this template at the offered price; None if unbounded."""
    team = request.setup.teams[offer.team]
    brands = possible_brand_values(team, request.setup.platform)
    layout = team.layouts.get(offer.layout or "")
    return bounds_of(offer, brands, layout, team.record.segmenting, base_url=request.context.base_url)
