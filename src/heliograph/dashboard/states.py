"""Label, colour and icon of all states on pages, such as those of messages, senders and teams."""

import msgspec


class StateLabel(msgspec.Struct, frozen=True):
    label: str
    kind: str  # good, info, wait, bad; empty if neutral
    icon: str


def _same_style(kind: str, icon: str, *states: str, **labels_by_state: str) -> dict[str, StateLabel]:
    labels = {state: state.replace("_", " ").capitalize() for state in states} | labels_by_state
    return {state: StateLabel(label, kind, icon) for state, label in labels.items()}


LABEL_BY_STATE: dict[str, StateLabel] = {
    **_same_style(
        "good", "check", "delivered", "read", "verified", "approved", "live", "enabled", "active", "published", "on"
    ),
    **_same_style("good", "check", ok="OK", in_use="In use", works="Active", done="Done", good="Good"),
    **_same_style("info", "clock", "queued", "sending", "scheduled", "accepted", "importing", "checking"),
    **_same_style("info", "arrow", "sent"),
    **_same_style("wait", "clock", "waiting", "deferred", "invited", "expires", pending="Waiting", submitted="Waiting"),
    **_same_style("wait", "warning", "unverified", "low", "slow", warn="Warning", simulated="Simulated"),
    **_same_style("wait", "pause", "paused"),
    **_same_style("wait", "dot", "draft", "untested"),
    **_same_style("wait", "inbox", "sandbox"),
    **_same_style(
        "bad", "error", "bounced", "failed", "complained", "exhausted", "suspended", "refused", "rejected", "stopped"
    ),
    **_same_style("bad", "warning", "broken", "error", "failing", "out_of_reach"),
    **_same_style("", "clock", "expired"),
    **_same_style("", "suppression", "suppressed", "disabled", "revoked", "canceled", "cancelled", "archived", "off"),
}


def state_label(state: str) -> StateLabel:
    """Return the label, colour and icon of a state; for an unknown state, its name with a capital."""
    return LABEL_BY_STATE.get(state) or StateLabel(
        state.replace("_", " ")[:1].upper() + state.replace("_", " ")[1:], "", "dot"
    )
