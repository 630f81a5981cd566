"""Label, colour and icon of every state that pages show, of messages, senders, teams and others."""

import msgspec


class Word(msgspec.Struct, frozen=True):
    label: str
    kind: str  # good, info, wait, bad; empty if neutral
    icon: str


def _all(kind: str, icon: str, *words: str, **named: str) -> dict[str, Word]:
    labels = {word: word.replace("_", " ").capitalize() for word in words} | named
    return {word: Word(label, kind, icon) for word, label in labels.items()}


STATES: dict[str, Word] = {
    **_all(
        "good", "check", "delivered", "read", "verified", "approved", "live", "enabled", "active", "published", "on"
    ),
    **_all("good", "check", ok="OK", in_use="In use", works="Active", done="Done", good="Good"),
    **_all("info", "clock", "queued", "sending", "scheduled", "accepted", "importing", "checking"),
    **_all("info", "arrow", "sent"),
    **_all("wait", "clock", "waiting", "deferred", "invited", "expires", pending="Waiting", submitted="Waiting"),
    **_all("wait", "warning", "unverified", "low", "slow", warn="Warning", simulated="Simulated", failing="Failing"),
    **_all("wait", "pause", "paused"),
    **_all("wait", "dot", "draft", "untested"),
    **_all("wait", "inbox", "sandbox"),
    **_all(
        "bad", "error", "bounced", "failed", "complained", "exhausted", "suspended", "refused", "rejected", "stopped"
    ),
    **_all("bad", "warning", "broken", "error", "out_of_reach"),
    **_all("", "clock", "expired"),
    **_all("", "suppression", "suppressed", "disabled", "revoked", "canceled", "cancelled", "archived", "off"),
}


def state_of(word: str) -> Word:
    """Return the label, colour and icon of a state; an unknown state is shown by its capitalized name."""
    return STATES.get(word) or Word(word.replace("_", " ")[:1].upper() + word.replace("_", " ")[1:], "", "dot")
