"""What needs somebody's attention in a team, worst first, and where it is mended. Pure."""

from collections.abc import Iterable, Iterator

import msgspec

from heliograph.rules.circuit import Circuit
from heliograph.rules.pricing import Account, format_money, month_of
from heliograph.rules.reputation import Reputation, rates
from heliograph.rules.setup.records import Team
from heliograph.rules.setup.snapshot import Setup


class Concern(msgspec.Struct, frozen=True):
    word: str  # of its badge
    text: str
    mend: str  # the link's text
    to: str  # below the team's pages, unless it is a whole path


OPERATOR = "/dashboard/operator"


def of_instance(setup: Setup, circuits: Iterable[Circuit], operator: bool) -> Iterator[Concern]:
    """`operator`: the reader is one, and can mend it."""
    if setup.platform.paused:
        text, reason = "Delivery is paused: messages wait in the queue.", setup.platform.paused_reason
        if operator and reason:
            text = f"Delivery is paused: {reason}. Messages wait in the queue."
        mend = ("Resume it", f"{OPERATOR}/queues") if operator else ("See what waits", "/messages?status=queued")
        yield Concern("paused", text, *mend)
    for circuit in circuits if operator else ():
        text = f"Nothing reaches the carrier {circuit.id}: {circuit.reason or 'no answer'}."
        yield Concern("failed", text, "Look at the carriers", f"{OPERATOR}/carriers")


def of_team(
    team: Team,
    reputation: Reputation | None,
    account: Account,
    failing: dict[str, int],
    now: int,
    operator: bool,
) -> Iterator[Concern]:
    """`failing`: webhooks whose last tries failed; `operator`: the reader is one."""
    if team.record.suspended:
        mend = ("Lift it", f"{OPERATOR}/teams/{team.record.id}") if operator else ("Ask an operator", "/team")
        yield Concern("suspended", "The team is suspended: nothing can be sent.", *mend)
    yield from _email(team, reputation)
    for hook in team.webhooks:
        if not hook.enabled and hook.disabled_reason:
            text = f"The webhook {hook.url} was disabled: {hook.disabled_reason}."
            yield Concern("failed", text, "Mend and enable it", f"/webhooks/{hook.id}")
        elif hook.id in failing:
            text = f"The webhook {hook.url} does not take events."
            yield Concern("failed", text, "See its deliveries", f"/webhooks/{hook.id}")
    if team.sandbox:
        text = "The team is in the sandbox: only verified and simulated recipients get messages."
        yield Concern("sandbox", text, "Go live", "/settings")
    else:
        yield from _money(team, account, now)


def _email(team: Team, reputation: Reputation | None) -> Iterator[Concern]:
    if reputation and reputation.state != "ok":
        what = {
            "paused": "Direct emails are paused",
            "warn": "Direct emails will be paused if this goes on",
        }[reputation.state]
        text = f"{what}: {rates(reputation)}."
        yield Concern(reputation.state, text, "See what bounced", "/messages?status=bounced")
    if not team.sandbox and not team.domains:
        yield Concern("pending", "There is no domain to send from.", "Add one", "/senders")
    for domain in team.domains.values():
        here = f"/senders/domains/{domain.id}"
        if not domain.verified:
            yield Concern("pending", f"{domain.name} is not verified.", "See its records", here)
        elif not domain.approved:
            yield Concern("pending", f"{domain.name} waits for an operator's approval.", "See the domain", here)


def _money(team: Team, account: Account, now: int) -> Iterator[Concern]:
    record = team.record
    if account.available < record.credit_low:
        text = f"The credit is low: {format_money(account.available)} {record.currency}."
        yield Concern("warn", text, "See the money", "/money")
    if 0 < record.email_quota <= used_this_month(account, now):
        text = "This month's email quota is used up: priced templates cost credit now."
        yield Concern("warn", text, "See the plan", "/money")


def used_this_month(account: Account, now: int) -> int:
    return account.used if account.month == month_of(now) else 0
