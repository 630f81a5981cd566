"""Drafts of templates, new ones and changes of those in use: kept, published, and judged by an operator."""

import hashlib

import msgspec
from msgspec.structs import replace

from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.plan import next_version
from heliograph.domain.setup.records import Layout, Team, Template, TemplateDraft
from heliograph.domain.setup.snapshot import Row, Setup, to_row


class PendingTemplate(msgspec.Struct, frozen=True, kw_only=True):
    team: Team
    template: Template  # as it would become
    current: Template | None  # as it is sent now; None: it never was
    by: str | None = None  # usr_… who wrote it, and when; None: its versions say
    at: int | None = None

    @property
    def mark(self) -> str:
        """Return what an approval names, so that nothing is approved unseen."""
        return mark_of(self.template)

    @property
    def waits(self) -> bool:
        """Tell whether it waits for an operator; else it is its team's turn."""
        return not (self.template.unfinished or self.template.refused_reason)


def mark_of(record: Template | Layout) -> str:
    return hashlib.sha256(msgspec.json.encode(record)).hexdigest()[:16]


def list_pending(setup: Setup) -> list[PendingTemplate]:
    """List those of the whole instance."""
    kinds = ("template", "template_draft")
    found = (find_draft(setup, id_) for kind, id_ in setup.records if kind in kinds)
    waiting = {draft.template.id: draft for draft in found if draft and draft.waits}
    return sorted(waiting.values(), key=lambda draft: (draft.team.record.name, draft.template.name))


def find_draft(setup: Setup, id_: str) -> PendingTemplate | None:
    """Return the unapproved state of a template, when there is one, refused or not."""
    current, draft = setup.records.get(("template", id_)), setup.records.get(("template_draft", id_))
    if not isinstance(current, Template) or current.team not in setup.teams:
        return None
    team = setup.teams[current.team]
    if isinstance(draft, TemplateDraft):
        return PendingTemplate(team=team, template=draft.template, current=current, by=draft.by, at=draft.at)
    return PendingTemplate(team=team, template=current, current=None) if current.status == "draft" else None


def approve(
    setup: Setup,
    id_: str,
    mark: str,
    *,
    price: int | None = None,
    prices: dict[str, int] | None = None,
    free: bool = False,
) -> list[Row]:
    """Approve it at these prices, when they are given; what is free is so because somebody said it."""
    new = seen(setup, id_, mark).template
    if price is not None:
        new = replace(new, price=price, prices=prices or {})
    check_price(new, free=free)
    return approved_rows(setup, new)


def check_price(template: Template, *, free: bool) -> None:
    if template.channel != "email" and not free and not all((template.price, *template.prices.values())):
        raise InvalidRequest("Set a price above nothing, everywhere; or say that it is free.", param="price")


def refuse(setup: Setup, id_: str, mark: str, reason: str) -> list[Row]:
    """Refuse a draft, which stays with the team, with the reason."""
    draft = seen(setup, id_, mark)
    if draft.template.refused_reason == reason:
        return []
    refused = replace(draft.template, refused_reason=reason, submitted_at=0)
    return draft_rows(setup, refused, draft.by or "", draft.at or 0)


def discard(setup: Setup, id_: str) -> list[Row]:
    """Drop a change; a template that was never approved is gone with it."""
    draft = find_draft(setup, id_)
    if draft is None:
        return []
    return [to_row("template_draft" if draft.current else "template", id_, None, draft.template.team)]


def approved_rows(setup: Setup, new: Template) -> list[Row]:
    """Put a template into use; nothing when it is in use like this."""
    new = replace(_numbered(setup, new), status="approved", refused_reason="", unfinished=False, submitted_at=0)
    rows = [] if setup.records.get(("template", new.id)) == new else [to_row("template", new.id, new, new.team)]
    if ("template_draft", new.id) in setup.records:
        rows.append(to_row("template_draft", new.id, None, new.team))
    return rows


def draft_rows(setup: Setup, new: Template, by: str, at: int) -> list[Row]:
    """Keep a template that is not published; what is in use stays."""
    old, new = setup.records.get(("template", new.id)), replace(_numbered(setup, new), status="draft")
    if isinstance(old, Template) and old.status != "draft":
        return [to_row("template_draft", new.id, TemplateDraft(team=new.team, template=new, by=by, at=at), new.team)]
    return [to_row("template", new.id, new, new.team)]


def _numbered(setup: Setup, new: Template) -> Template:
    """Give it the version that it becomes beside what is there now; one that was never published keeps its first."""
    old = setup.records.get(("template", new.id))
    if not isinstance(old, Template):
        return new
    return replace(new, version=old.version if old.status == "draft" else next_version(old, new))


def seen(setup: Setup, id_: str, mark: str) -> PendingTemplate:
    draft = find_draft(setup, id_)
    if draft is None or draft.mark != mark:
        raise InvalidRequest("This draft was changed meanwhile. Look at it again, then decide.")
    return draft
