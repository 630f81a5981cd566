"""Notifies requesters of an operator's decision.

Pages, commands and routes call `notify_requester` after they have written an approval or refusal of a domain, display
name, sender id, team name, template or layout.
"""

import msgspec

from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.setup.undo_decision import RecordedDecision, list_reversible, requester_of, undo_rows
from heliograph.storage.store import Store
from heliograph.texts.dashboard_links import team_page

PERSON_ID_PREFIX = "usr_"


class ApprovalResult(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's decision about a team's request, as sent to the requester."""

    team: str
    kind: str  # domain, display_name, sender_id, team, template, layout
    text: str  # description of the request
    approved: bool | None  # None if an earlier decision was undone
    reason: str  # reason of a refusal
    requester: str  # usr_…; empty if unknown or not a person
    id: str  # id of the requested object

    @property
    def sentence(self) -> str:
        subject = self.text[:1].lower() + self.text[1:]
        if self.approved is None:
            return f"Decision undone: {subject}. The request is pending again."
        return f"Approved: {subject}." if self.approved else f"Refused: {subject}. {self.reason}".strip()


def requester_id(actor: Actor) -> str:
    """Return the id of the person to notify of a decision on the actor's request; empty if the actor is no person."""
    return actor.id if actor.kind == "person" else ""


async def notify_requester(store: Store, actor: Actor, decision: ApprovalResult) -> None:
    """Notify the requester on their next page, unless they made the decision themselves."""
    if decision.requester.startswith(PERSON_ID_PREFIX) and decision.requester != actor.name:
        await store.decisions.add(
            decision.requester, decision.sentence, team_page(decision.team, decision.kind, decision.id)
        )


async def undo_decision(store: Store, actor: Actor, past_decision: RecordedDecision) -> bool:
    """Undo an operator's decision; return False if it no longer applies or cannot be undone."""
    before = store.setup.current
    requester, (_, id_) = requester_of(before, past_decision), list_reversible(before).get(past_decision, ("", ""))
    changed = await change_rows(
        store,
        actor,
        past_decision.team,
        f"{past_decision.kind}.reopen",
        past_decision.text,
        lambda setup: undo_rows(setup, past_decision, store.clock.now()),
    )
    if changed:
        result = ApprovalResult(
            team=past_decision.team,
            kind=past_decision.kind,
            text=past_decision.text,
            approved=None,
            reason="",
            requester=requester,
            id=id_,
        )
        await notify_requester(store, actor, result)
    return changed
