"""What an operator decided about a team's wish, said to whoever asked.

`decided` is the one place: every approval and refusal of a domain, name, sender id, team name or template comes here,
after it was written, from pages, commands and routes.
"""

import msgspec

from heliograph.rules.audit import Actor
from heliograph.storage.store import Store
from heliograph.words.places import of_team

PERSON = "usr_"


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    team: str
    kind: str  # domain, display_name, sender_id, team, template
    text: str  # what was asked for
    approved: bool
    reason: str  # of a refusal
    asked_by: str  # usr_…; empty: not a person, or not known
    id: str  # of what was asked for

    @property
    def sentence(self) -> str:
        asked = self.text[:1].lower() + self.text[1:]
        return f"Approved: {asked}." if self.approved else f"Refused: {asked}. {self.reason}".strip()


def asker(actor: Actor) -> str:
    """Return who is told of the decision: people, not keys."""
    return actor.id if actor.kind == "person" else ""


async def decided(store: Store, actor: Actor, decision: Ruling) -> None:
    """Tell the asker on their next page; whoever decides about their own wish knows it."""
    if decision.asked_by.startswith(PERSON) and decision.asked_by != actor.name:
        await store.decisions.tell(
            decision.asked_by, decision.sentence, of_team(decision.team, decision.kind, decision.id)
        )
