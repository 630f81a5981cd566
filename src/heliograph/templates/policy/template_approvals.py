"""Drafts of templates, new or changing one in use: saving, publishing, and approval by an operator."""

import hashlib

import msgspec
from msgspec.structs import replace

from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.plan import next_version
from heliograph.domain.setup.records import Layout, Team, Template, TemplateDraft
from heliograph.domain.setup.snapshot import Row, Setup, to_row


class PendingTemplate(msgspec.Struct, frozen=True, kw_only=True):
    team: Team
    template: Template  # the template as proposed
    current: Template | None  # the template in use; None if it was never approved
    by: str | None = None  # user id (usr_…) of the author, with `at` the time; None if only in the versions
    at: int | None = None

    @property
    def mark(self) -> str:
        """Return the draft's revision; an approval must name it, so that only the content seen is approved."""
        return mark_of(self.template)

    @property
    def waits(self) -> bool:
        """Return whether the draft waits for an operator; otherwise the team must act."""
        return not (self.template.unfinished or self.template.refused_reason)


def mark_of(record: Template | Layout) -> str:
    return hashlib.sha256(msgspec.json.encode(record)).hexdigest()[:16]


def list_pending(setup: Setup) -> list[PendingTemplate]:
    """Return all drafts of the instance that wait for an operator."""
    kinds = ("template", "template_draft")
    found = (find_draft(setup, id_) for kind, id_ in setup.records if kind in kinds)
    waiting = {draft.template.id: draft for draft in found if draft and draft.waits}
    return sorted(waiting.values(), key=lambda draft: (draft.team.record.name, draft.template.name))


def find_draft(setup: Setup, id_: str) -> PendingTemplate | None:
    """Return the draft of a template, refused or not; None if there is none."""
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
    """Approve the draft, with new prices if given. A price of 0 must be confirmed with `free`."""
    new = seen(setup, id_, mark).template
    if price is not None:
        new = replace(new, price=price, prices=prices or {})
    check_price(new, free=free)
    return approved_rows(setup, new)


def check_price(template: Template, *, free: bool) -> None:
    if template.channel != "email" and not free and not all((template.price, *template.prices.values())):
        raise InvalidRequest("Set a price above nothing, everywhere; or say that it is free.", param="price")


def refuse(setup: Setup, id_: str, mark: str, reason: str) -> list[Row]:
    """Refuse a draft; the team keeps it with the reason."""
    draft = seen(setup, id_, mark)
    if draft.template.refused_reason == reason:
        return []
    refused = replace(draft.template, refused_reason=reason, submitted_at=0)
    return draft_rows(setup, refused, draft.by or "", draft.at or 0)


def discard(setup: Setup, id_: str) -> list[Row]:
    """Discard a draft; a template that was never approved is deleted."""
    draft = find_draft(setup, id_)
    if draft is None:
        return []
    return [to_row("template_draft" if draft.current else "template", id_, None, draft.template.team)]


def approved_rows(setup: Setup, new: Template) -> list[Row]:
    """Return the rows that put a template into use; empty if it is already in use unchanged."""
    new = replace(_numbered(setup, new), status="approved", refused_reason="", unfinished=False, submitted_at=0)
    rows = [] if setup.records.get(("template", new.id)) == new else [to_row("template", new.id, new, new.team)]
    if ("template_draft", new.id) in setup.records:
        rows.append(to_row("template_draft", new.id, None, new.team))
    return rows


def draft_rows(setup: Setup, new: Template, by: str, at: int) -> list[Row]:
    """Return the rows that save a template as a draft; the template in use does not change."""
    old, new = setup.records.get(("template", new.id)), replace(_numbered(setup, new), status="draft")
    if isinstance(old, Template) and old.status != "draft":
        return [to_row("template_draft", new.id, TemplateDraft(team=new.team, template=new, by=by, at=at), new.team)]
    return [to_row("template", new.id, new, new.team)]


def _numbered(setup: Setup, new: Template) -> Template:
    """Set the version that the template gets when published; a template that was never published keeps its version."""
    old = setup.records.get(("template", new.id))
    if not isinstance(old, Template):
        return new
    return replace(new, version=old.version if old.status == "draft" else next_version(old, new))


def seen(setup: Setup, id_: str, mark: str) -> PendingTemplate:
    draft = find_draft(setup, id_)
    if draft is None or draft.mark != mark:
        raise InvalidRequest("This draft was changed meanwhile. Look at it again, then decide.")
    return draft
