"""Checklist of a sandbox team before it goes live: requirements and recommendations."""

from collections.abc import Sequence

import msgspec

from heliograph.domain.delivery.routing import closed_channels, simulated_channels
from heliograph.domain.setup.records import CarrierRecord, Channel, Team


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    text: str
    done: bool
    needed: bool = False  # the team cannot go live without this
    subject: str = ""  # object to fix
    act: str = ""  # action that only an operator can take …
    tab: str = ""  # … and the tab of the operator's team page for this action; empty: the carriers page


def checklist(team: Team, carriers: Sequence[CarrierRecord], credit: int) -> list[Requirement]:
    domain = next(iter(team.approved_domains), None)
    template = next((t for t in team.templates.values() if t.status == "approved"), None)
    return [
        Requirement(
            title="A domain to send from",
            text=f"{domain.name} is verified and approved."
            if domain
            else "Add a domain; it must be verified by DNS and approved by an operator.",
            done=domain is not None,
            needed=True,
            subject="domain",
        ),
        *_catch_check(team),
        *_clock_check(team),
        _carrier_check(carriers),
        Requirement(
            title="Credit",
            text="There is credit for what is not free."
            if credit > 0
            else "There is none: email within the quota is free, all else is refused.",
            done=credit > 0,
            act="Top up",
            tab="credit",
        ),
        Requirement(
            title="A template",
            text=f"{template.name} is approved." if template else "None is approved: SMS and WhatsApp need one.",
            done=template is not None,
            subject="template",
        ),
    ]


def _catch_check(team: Team) -> list[Requirement]:
    told = "It catches: what programs of other services send goes to the test inbox only. That must be off."
    act = {"act": "Turn catching off", "tab": "plan"}
    return [Requirement(title="Catching", text=told, done=False, needed=True, **act)] if team.record.catch else []


def _clock_check(team: Team) -> list[Requirement]:
    told = "It has a test clock. Turn that off first: its messages, codes and events are then deleted."
    return [Requirement(title="Test clock", text=told, done=False, needed=True)] if team.record.test_clock else []


def may_go_live(checks: Sequence[Requirement]) -> bool:
    return all(check.done for check in checks if check.needed)


def _carrier_check(carriers: Sequence[CarrierRecord]) -> Requirement:
    """Check that every channel has an enabled carrier other than a simulator."""
    simulated, closed = simulated_channels(carriers), closed_channels(carriers)
    said = [f"Simulators take {_said(simulated)}: nothing of it leaves this instance."] if simulated else []
    said += [f"No carrier takes {_said(closed)}: all are disabled."] if closed else []
    text = " ".join(said) or "Every channel has a carrier."
    return Requirement(title="Carriers", text=text, done=not said, act="See the carriers")


def _said(channels: Sequence[Channel]) -> str:
    return ", ".join({"email": "email", "sms": "SMS", "whatsapp": "WhatsApp"}[channel] for channel in channels)
