"""Approval queue for operators: domains, display names, sender ids, templates and layouts of all teams."""

import hashlib
import re

from heliograph.changes import decisions
from heliograph.dashboard.audit_texts import actor_of, subject_of
from heliograph.dashboard.live import Pulse, Watch
from heliograph.dashboard.page_request import Answer, Page, Redirect, Visit, errors_of, waiting_ids
from heliograph.dashboard.views.live import stream
from heliograph.dashboard.views.template_form import is_free, prices_given, to_form
from heliograph.domain.ids import ulid_ms
from heliograph.domain.limits import DAY_MS
from heliograph.domain.mail.reputation import Counts, rates
from heliograph.domain.mail.sender import brands_of, usual_brand
from heliograph.domain.phones.countries import country_name, country_names
from heliograph.domain.phones.gsm import Segments, segment
from heliograph.domain.refusals import BodyTooLong, InvalidRequest
from heliograph.domain.setup.records import Template
from heliograph.domain.setup.sender_approvals import PendingSender, pending
from heliograph.domain.setup.undo_decision import Decided, list_reversible
from heliograph.domain.text import whole_number
from heliograph.manage import senders
from heliograph.storage.audit import NEWEST, AuditFilter
from heliograph.templates import layout_service as layouts
from heliograph.templates import service as templates
from heliograph.templates.policy import layout_drafts
from heliograph.templates.policy.bounds import Bounds, bounds_of
from heliograph.templates.policy.examples import example_values
from heliograph.templates.policy.render import render
from heliograph.templates.policy.template_approvals import list_pending, mark_of
from heliograph.templates.policy.template_edit import offered
from heliograph.texts.dashboard_links import OPERATOR

HERE = f"{OPERATOR}/approvals"
KINDS = {
    "domain": "Domain",
    "display_name": "Display name",
    "sender_id": "SMS sender ID",
    "team": "Team name",
}
EXCERPT = 400  # characters shown of a template's text
SHOWN = 50  # decisions per page
LAYOUT_EXCERPT = 4000  # characters shown of a layout, which no other page shows
ULID = re.compile("[0-9A-HJKMNP-TV-Z]{26}")
PEOPLE_MAX = 100  # maximum number of requesters whose addresses are looked up, and of teams whose statistics are
RATES_MS = 30 * DAY_MS
DECIDED = f"{HERE}?tab=decided"
MEANWHILE = "It was changed or decided meanwhile."


async def decide(visit: Visit) -> Answer:
    """Approve or refuse the sender that the operator saw; no decision is made if the sender was changed since."""
    kind, id_, text = (visit.form.get(name, "") for name in ("kind", "id", "text"))
    item = PendingSender(kind=kind, team=visit.team.record.id, id=id_, text=text)
    approve, reason = visit.form.get("approve") == "yes", visit.form.get("reason", "")
    try:
        done = await senders.decide_pending(visit.store, visit.actor, item, approve, reason)
    except InvalidRequest as refusal:
        return await _page(visit, id_, {"reason": refusal.message})
    return Redirect(f"{HERE}?decided=yes", _told(text, approve)) if done else Redirect(HERE, MEANWHILE)


async def decide_template(visit: Visit) -> Answer:
    """Approve the template at the form's prices, or refuse it with a reason."""
    team, id_, form = visit.team.record.id, visit.params["template"], visit.form
    mark, approve = form.get("mark", ""), form.get("approve") == "yes"
    try:
        if approve:
            terms = prices_given(form) if "price" in form else None
            await templates.approve(visit.store, visit.actor, team, id_, mark, terms, free=is_free(form))
        else:
            await templates.refuse(visit.store, visit.actor, team, id_, mark, form.get("reason", ""))
    except InvalidRequest as refusal:
        errors = errors_of(refusal)
        return await _page(
            visit, id_, {name or ("reason" if not approve else "price"): why for name, why in errors.items()}
        )
    return Redirect(f"{HERE}?decided=yes", _told(form.get("text", "The template"), approve))


async def decide_layout(visit: Visit) -> Answer:
    id_, form = layouts.find(visit.setup, visit.team.record.id, visit.params["layout"]).id, visit.form
    mark, approve = form.get("mark", ""), form.get("approve") == "yes"
    try:
        if approve:
            await layouts.approve(visit.store, visit.actor, id_, mark)
        else:
            await layouts.refuse(visit.store, visit.actor, id_, mark, form.get("reason", ""))
    except InvalidRequest as refusal:
        return await _page(visit, id_, {"reason": refusal.message})
    return Redirect(f"{HERE}?decided=yes", _told(form.get("text", "The layout"), approve))


def _told(text: str, approve: bool) -> str:
    return f"Approved: {text}." if approve else f"Refused: {text}. The team sees the reason."


async def reopen(visit: Visit) -> Answer:
    """Undo a decision, so that its subject is pending again."""
    form = visit.form
    earlier = Decided(
        team=visit.team.record.id,
        kind=form.get("kind", ""),
        said=form.get("said", ""),
        approved=form.get("approved") == "yes",
    )
    done = await decisions.reopen(visit.store, visit.actor, earlier)
    return Redirect(HERE, "It waits again.") if done else Redirect(DECIDED, MEANWHILE)


async def show(visit: Visit) -> Answer:
    return await _decided(visit) if visit.query.get("tab") == "decided" else await _page(visit)


async def _decided(visit: Visit) -> Page:
    """List decisions, newest first; the latest decision about a subject can be undone if it is reversible."""
    before = whole_number(visit.query.get("before", ""), 18)
    found = await visit.store.audit.page(None, AuditFilter(decisions=True), NEWEST if before is None else before, SHOWN)
    left = set(list_reversible(visit.setup))
    lines = []
    for line in found.lines:
        kind, _, verb = line.action.partition(".")
        earlier = Decided(team=line.team or "", kind=kind, said=line.subject, approved=verb == "approve")
        lines.append(
            {
                "line": line,
                "kind": KINDS.get(kind) or kind.capitalize(),
                "state": "approved" if earlier.approved else "refused",
                "subject": subject_of(line, visit.setup, operator=True),
                "who": actor_of(line, visit.setup),
                "team": visit.setup.teams.get(line.team or ""),
                "earlier": earlier if earlier in left else None,
            }
        )
        left.discard(earlier)
    values = {
        "lines": lines,
        "newest": DECIDED if before is not None else "",
        "older": f"{DECIDED}&before={found.after}" if found.after else "",
    }
    return Page("decided.html", values)


async def live(visit: Visit) -> Answer:
    """Stream changes of the number of pending items, for the navigation; with `of=list`, of the items."""

    async def read() -> Pulse:
        return Pulse({"count": str(visit.approvals), "list": _word(visit)})

    part = "list" if visit.query.get("of") == "list" else "count"
    return stream(visit, Watch(key=("approvals",), read=read, parts=(part,)))


def _word(visit: Visit) -> str:
    return hashlib.sha256("\n".join(waiting_ids(visit.setup)).encode()).hexdigest()[:16]


async def _page(visit: Visit, wrong: str = "", errors: dict[str, str] | None = None) -> Page:
    asked, drafts = pending(visit.setup), list_pending(visit.setup)
    offers = [(draft, offered(visit.setup, draft.template)) for draft in drafts]
    people = sorted({one.asked_by for one in asked} | {draft.by or "" for draft in drafts})
    found = [await visit.store.people.get(id_) for id_ in people[:PEOPLE_MAX] if id_.startswith("usr_")]
    teams = {one.team for one in asked} | {draft.team.record.id for draft in drafts}
    refs = {id_: team.record.ref for id_ in sorted(teams)[:PEOPLE_MAX] if (team := visit.setup.teams.get(id_))}
    seen = await visit.store.figures.of_teams(refs.values(), visit.context.clock.now() - RATES_MS) if refs else {}
    values = {
        "live": f"{HERE}/live?of=list&seen={_word(visit)}" if visit.request.method == "GET" else "",
        "senders": sorted(
            ((item, asked_at(item)) for item in asked), key=lambda one: one[1] or visit.context.clock.now()
        ),
        "drafts": [
            (draft, offer, to_form(offer), _bounds(visit, offer), _listed(visit, offer), _segments(visit, offer))
            for draft, offer in offers
        ],
        "countries": country_names() if any(offer.channel != "email" for _, offer in offers) else {},
        "country_name": country_name,
        "priced": _priced,
        "layouts": [(layout, mark_of(layout)) for layout in layout_drafts.list_pending(visit.setup)],
        "kinds": KINDS,
        "excerpt": EXCERPT,
        "layout_excerpt": LAYOUT_EXCERPT,
        "teams": visit.setup.teams,
        "rates": {
            id_: rates(Counts(sends=sent.emails, bounces=sent.bounced, complaints=sent.complained))
            for id_, ref in refs.items()
            if (sent := seen.get(ref))
        },
        "people": {person.id: person.email for person in found if person},
        "wrong": wrong,
        "errors": errors or {},
        "form": visit.form,
    }
    return Page("approvals.html", values, 400 if errors else 200)


def asked_at(item: PendingSender) -> int | None:
    """Return when the sender was requested, from its id; None for a change or an id from a setup file."""
    body = item.id.partition("_")[2]
    return ulid_ms(body) if not item.is_change and ULID.fullmatch(body) else None


def _listed(visit: Visit, offer: Template) -> dict[str, int]:
    """Return the instance's prices for the template's channel and currency: by country, and `*` for all others."""
    currency = visit.setup.teams[offer.team].record.currency
    return visit.setup.platform.prices.get(offer.channel, {}).get(currency, {})


def _priced(offer: Template, listed: dict[str, int]) -> list[tuple[str, str]]:
    """Return (code, name) of the countries priced in the template or the price list, sorted by name."""
    codes = (offer.prices.keys() | listed.keys()) - {"*"}
    return sorted(((code, country_name(code)) for code in codes), key=lambda one: one[1])


def _segments(visit: Visit, offer: Template) -> tuple[Segments, int] | None:
    """Return the SMS segments of the template with its example values, and the number of billed segments."""
    if offer.channel != "sms":
        return None
    team = visit.setup.teams[offer.team]
    try:
        shown = render(offer, example_values(offer), usual_brand(team, visit.setup.platform))
    except BodyTooLong:
        return None
    parts = segment(shown.body or "")
    return parts, parts.billed(team.record.segmenting)


def _bounds(visit: Visit, offer: Template) -> Bounds | None:
    """Return the maximum size and cost of a message from this template at the offered price; None if unbounded."""
    team = visit.setup.teams[offer.team]
    brands = brands_of(team, visit.setup.platform)
    return bounds_of(offer, brands, team.layouts.get(offer.layout or ""), team.record.segmenting)
