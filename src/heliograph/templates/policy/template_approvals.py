"""Drafts of new and changed templates: saving, publishing, and approval by an operator."""

import hashlib

import msgspec
from msgspec.structs import replace

from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.plan import next_version
from heliograph.domain.setup.records import Layout, Team, Template, TemplateDraft
from heliograph.domain.setup.snapshot import Row, Setup, to_row


class TemplateDraftState(msgspec.Struct, frozen=True, kw_only=True):
    """A template draft with its team and the version in use."""

    team: Team
    template: Template  # the template as proposed
    current: Template | None  # the template in use; None if it was never approved
    # User id (usr_…) of the author. None, like `saved_at`, if only the stored versions have these values.
    author: str | None = None
    saved_at: int | None = None

    @property
    def revision(self) -> str:
        """Return the revision, which an approval must name, so that only the reviewed content is approved."""
        return revision_of(self.template)

    @property
    def awaits_approval(self) -> bool:
        """Return whether the draft waits for an operator; if not, the team must submit or change it."""
        return not (self.template.unfinished or self.template.refused_reason)


def revision_of(record: Template | Layout) -> str:
    return hashlib.sha256(msgspec.json.encode(record)).hexdigest()[:16]


def list_pending(setup: Setup) -> list[TemplateDraftState]:
    """Return all drafts of the instance that wait for an operator."""
    kinds = ("template", "template_draft")
    drafts = (find_draft(setup, id_) for kind, id_ in setup.records if kind in kinds)
    pending_drafts = {draft.template.id: draft for draft in drafts if draft and draft.awaits_approval}
    return sorted(pending_drafts.values(), key=lambda draft: (draft.team.record.name, draft.template.name))


def find_draft(setup: Setup, id_: str) -> TemplateDraftState | None:
    """Return the draft of a template, refused or not; None if it has no draft."""
    current, draft = setup.records.get(("template", id_)), setup.records.get(("template_draft", id_))
    if not isinstance(current, Template) or current.team not in setup.teams:
        return None
    team = setup.teams[current.team]
    if isinstance(draft, TemplateDraft):
        return TemplateDraftState(
            team=team, template=draft.template, current=current, author=draft.by, saved_at=draft.at
        )
    return TemplateDraftState(team=team, template=current, current=None) if current.status == "draft" else None


def approve_rows(
    setup: Setup,
    id_: str,
    revision: str,
    *,
    price: int | None = None,
    prices: dict[str, int] | None = None,
    free: bool = False,
) -> list[Row]:
    """Return the rows that approve a draft, with new prices if passed. `free`: the operator confirms a price of 0."""
    new = find_draft_revision(setup, id_, revision).template
    if price is not None:
        new = replace(new, price=price, prices=prices or {})
    check_price(new, free=free)
    return publish_rows(setup, new)


def check_price(template: Template, *, free: bool) -> None:
    if template.channel != "email" and not free and not all((template.price, *template.prices.values())):
        raise InvalidRequest("Set a price above zero for all countries, or mark the template as free.", param="price")


def refuse_rows(setup: Setup, id_: str, revision: str, reason: str) -> list[Row]:
    """Return the rows that refuse a draft with a reason; empty if it was already refused for the same reason."""
    draft = find_draft_revision(setup, id_, revision)
    if draft.template.refused_reason == reason:
        return []
    refused_draft = replace(draft.template, refused_reason=reason, submitted_at=0)
    return draft_rows(setup, refused_draft, draft.author or "", draft.saved_at or 0)


def discard_rows(setup: Setup, id_: str) -> list[Row]:
    """Return the rows that delete a draft, or the whole template if it was never approved."""
    draft = find_draft(setup, id_)
    if draft is None:
        return []
    return [to_row("template_draft" if draft.current else "template", id_, None, draft.template.team)]


def publish_rows(setup: Setup, new: Template) -> list[Row]:
    """Return the rows that put a template into use and delete its draft; empty if nothing would change."""
    new = replace(_with_version(setup, new), status="approved", refused_reason="", unfinished=False, submitted_at=0)
    rows = [] if setup.records.get(("template", new.id)) == new else [to_row("template", new.id, new, new.team)]
    if ("template_draft", new.id) in setup.records:
        rows.append(to_row("template_draft", new.id, None, new.team))
    return rows


def draft_rows(setup: Setup, new: Template, author: str, saved_at: int) -> list[Row]:
    """Return the rows that save a template as a draft; the template in use does not change."""
    old, new = setup.records.get(("template", new.id)), replace(_with_version(setup, new), status="draft")
    if isinstance(old, Template) and old.status != "draft":
        draft = TemplateDraft(team=new.team, template=new, by=author, at=saved_at)
        return [to_row("template_draft", new.id, draft, new.team)]
    return [to_row("template", new.id, new, new.team)]


def _with_version(setup: Setup, new: Template) -> Template:
    """Set the version number that the template gets when published; a template never published keeps its number."""
    old = setup.records.get(("template", new.id))
    if not isinstance(old, Template):
        return new
    return replace(new, version=old.version if old.status == "draft" else next_version(old, new))


def find_draft_revision(setup: Setup, id_: str, revision: str) -> TemplateDraftState:
    draft = find_draft(setup, id_)
    if draft is None or draft.revision != revision:
        raise InvalidRequest("This draft was changed in the meantime. Review it again, then decide.")
    return draft
