"""Checklist of a sandbox team before it goes live: requirements and recommendations."""

from collections.abc import Sequence

import msgspec

from heliograph.domain.delivery.routing import disabled_channels, simulated_channels
from heliograph.domain.setup.records import CarrierRecord, Channel, Team


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    text: str
    done: bool
    needed: bool = False  # the team cannot go live without this
    subject: str = ""  # object to fix
    act: str = ""  # action that only an operator can take
    tab: str = ""  # tab of the operator's team page for `act`; empty: the carriers page


def checklist(team: Team, carriers: Sequence[CarrierRecord], credit: int) -> list[Requirement]:
    domain = next(iter(team.approved_domains), None)
    template = next((t for t in team.templates.values() if t.status == "approved"), None)
    return [
        Requirement(
            title="Sending domain",
            text=f"{domain.name} is verified and approved."
            if domain
            else "Add a domain. It must be verified by DNS and approved by an operator.",
            done=domain is not None,
            needed=True,
            subject="domain",
        ),
        *_sandbox_feature_checks(team),
        _carrier_check(carriers),
        Requirement(
            title="Credit",
            text="You have credit for charged messages."
            if credit > 0
            else "Only if you send SMS, WhatsApp messages or codes, or more emails than the quota: they need credit.",
            done=credit > 0,
            act="Add credit",
            tab="credit",
        ),
        Requirement(
            title="Approved template",
            text=f"{template.name} is approved." if template else "Only if you send by SMS or WhatsApp.",
            done=template is not None,
            subject="template",
        ),
    ]


def _sandbox_feature_checks(team: Team) -> list[Requirement]:
    """Return a requirement for each sandbox feature that must be turned off first."""
    checks = []
    if team.record.catch:
        title = "Turn off inbox capture"
        text = "Messages from compatibility APIs and SMTP currently go to the test inbox only."
        checks.append(Requirement(title=title, text=text, done=False, needed=True, act=title, tab="plan"))
    if team.record.test_clock:
        text = "Turning it off deletes the team's messages, codes and events."
        checks.append(Requirement(title="Turn off the test clock", text=text, done=False, needed=True))
    return checks


def may_go_live(checks: Sequence[Requirement]) -> bool:
    return all(check.done for check in checks if check.needed)


def _carrier_check(carriers: Sequence[CarrierRecord]) -> Requirement:
    """Check that every channel has an enabled carrier other than a simulator."""
    simulated, closed = simulated_channels(carriers), disabled_channels(carriers)
    problems = [f"{_channel_names(simulated)}: simulated, no real messages are sent."] if simulated else []
    problems += [f"{_channel_names(closed)}: all carriers are disabled."] if closed else []
    if problems and "email" not in (*simulated, *closed):
        problems.append(f"Needed only if you send by {_channel_names((*simulated, *closed))}.")
    text = " ".join(problems) or "All channels have a carrier."
    return Requirement(title="Carriers", text=text, done=not problems, act="View carriers")


def _channel_names(channels: Sequence[Channel]) -> str:
    return ", ".join({"email": "Email", "sms": "SMS", "whatsapp": "WhatsApp"}[channel] for channel in channels)
