"""Notifies requesters of an operator's decision.

Every approval and refusal of a domain, display name, sender id, team name, template or layout calls `decided` after the
change was written, from pages, commands and routes.
"""

import msgspec

from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.setup.undo_decision import Decided, asker_of, list_reversible, reopened
from heliograph.storage.store import Store
from heliograph.texts.dashboard_links import of_team

PERSON = "usr_"


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """Decision of an operator about a request of a team."""

    team: str
    kind: str  # domain, display_name, sender_id, team, template, layout
    text: str  # description of the request
    approved: bool | None  # None if an earlier decision was undone
    reason: str  # reason of a refusal
    asked_by: str  # usr_…; empty if unknown or not a person
    id: str  # id of the requested object

    @property
    def sentence(self) -> str:
        asked = self.text[:1].lower() + self.text[1:]
        if self.approved is None:
            return f"Taken back: {asked}. It waits for a decision again."
        return f"Approved: {asked}." if self.approved else f"Refused: {asked}. {self.reason}".strip()


def asker(actor: Actor) -> str:
    """Return the id of the person to notify of the decision; empty for API keys."""
    return actor.id if actor.kind == "person" else ""


async def decided(store: Store, actor: Actor, decision: Ruling) -> None:
    """Notify the requester on their next page, unless they made the decision themselves."""
    if decision.asked_by.startswith(PERSON) and decision.asked_by != actor.name:
        await store.decisions.tell(
            decision.asked_by, decision.sentence, of_team(decision.team, decision.kind, decision.id)
        )


async def reopen(store: Store, actor: Actor, earlier: Decided) -> bool:
    """Undo an operator's decision; return False if it no longer applies or cannot be undone."""
    before = store.setup.current
    asked_by, (_, id_) = asker_of(before, earlier), list_reversible(before).get(earlier, ("", ""))
    done = await change_rows(
        store,
        actor,
        earlier.team,
        f"{earlier.kind}.reopen",
        earlier.said,
        lambda setup: reopened(setup, earlier, store.clock.now()),
    )
    if done:
        ruling = Ruling(
            team=earlier.team, kind=earlier.kind, text=earlier.said, approved=None, reason="", asked_by=asked_by, id=id_
        )
        await decided(store, actor, ruling)
    return done
