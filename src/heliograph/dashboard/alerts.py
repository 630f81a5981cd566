"""Alerts for teams and operators, most severe first, each with a link to the page that fixes the problem."""

from collections.abc import Iterable, Iterator

import msgspec

from heliograph.dashboard.render import CHANNEL_NAMES, are, money
from heliograph.domain.accounts.idp_groups import OPERATOR, READ_ONLY
from heliograph.domain.delivery.circuit import Circuit
from heliograph.domain.delivery.routing import simulated_channels
from heliograph.domain.mail.reputation import Reputation, rates
from heliograph.domain.sending.pricing import Account, month_of
from heliograph.domain.setup.records import Team
from heliograph.domain.setup.snapshot import Setup
from heliograph.texts.dashboard_links import OPERATOR as HERE
from heliograph.texts.dashboard_links import below_team
from heliograph.texts.dashboard_links import of_instance as place_of


class Concern(msgspec.Struct, frozen=True):
    """An alert with its badge, text and link."""

    word: str  # status label of the badge
    what: str
    mend: str  # text of the link
    to: str  # path relative to the team's pages, or absolute
    everywhere: bool = False  # True to show the alert on every page, not only on the overview
    why: str = ""  # explanation appended to `what` where space allows

    @property
    def text(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what


# `role` is the reader's instance role. Alerts link to the page that fixes the problem if the role allows fixing it,
# otherwise to a page that shows the problem.


def of_instance(setup: Setup, circuits: Iterable[Circuit], role: str) -> Iterator[Concern]:
    if setup.platform.paused:
        why, reason = "messages are accepted and wait.", setup.platform.paused_reason
        if role and reason:
            why = f"{reason}. Messages are accepted and wait."
        way = {
            OPERATOR: ("Resume delivery", place_of("delivery")),
            READ_ONLY: ("See the queues", place_of("delivery")),
            "": ("See what waits", below_team("queued")),
        }
        yield Concern("paused", "Delivery is paused", *way[role], everywhere=True, why=why)
    for circuit in circuits if role else ():
        text = f"Nothing reaches the carrier {circuit.id}: {circuit.reason or 'no answer'}."
        yield Concern("failed", text, "Look at the carriers", place_of("carrier"))


def of_channels(setup: Setup, role: str) -> Iterator[Concern]:
    """Yield an alert if any channel is simulated, so that its messages never leave this instance."""
    if names := [CHANNEL_NAMES[channel] for channel in simulated_channels(setup.carriers)]:
        why = "messages reach nobody, even those that say delivered."
        way = {
            OPERATOR: ("Add a carrier", place_of("carrier") + "/new"),
            READ_ONLY: ("Look at the carriers", place_of("carrier")),
            "": ("See the test inbox", below_team("inbox")),
        }
        yield Concern("simulated", f"{are(names)} simulated", *way[role], everywhere=True, why=why)


def notices(setup: Setup, team: Team | None, account: Account | None, now: int, role: str) -> list[Concern]:
    """Return the alerts for every page of `team`; without a team, those for every operator page."""
    found = [*of_instance(setup, (), role)]
    if team and account:
        found += [*of_channels(setup, role), *of_team(team, None, account, {}, now, role)]
    return [one for one in found if one.everywhere]


def of_team(
    team: Team,
    reputation: Reputation | None,
    account: Account,
    failing: dict[str, int],
    now: int,
    role: str,
) -> Iterator[Concern]:
    """Yield the alerts of a team. `failing`: webhooks whose most recent delivery attempts failed."""
    if team.record.suspended:
        way = {
            OPERATOR: ("Resume team", f"{HERE}/teams/{team.record.id}"),
            READ_ONLY: ("See the team", f"{HERE}/teams/{team.record.id}"),
            "": ("Ask an operator", below_team("member")),
        }
        yield Concern("suspended", "The team is suspended", *way[role], everywhere=True, why="nothing can be sent.")
    yield from _email(team, reputation)
    for hook in team.webhooks:
        if not hook.enabled and hook.disabled_reason:
            text = f"The webhook {hook.url} was disabled: {hook.disabled_reason}."
            yield Concern("failed", text, "See the webhook", below_team("webhook", hook.id))
        elif hook.id in failing:
            text = f"Deliveries to {hook.url} are failing."
            yield Concern("failed", text, "See its deliveries", below_team("webhook", hook.id))
    if team.sandbox:
        text = "The team is in the sandbox: only verified and simulated recipients get messages."
        yield Concern("sandbox", text, "See what going live takes", below_team("team"))
    else:
        yield from _money(team, account, now)


def _email(team: Team, reputation: Reputation | None) -> Iterator[Concern]:
    if reputation and reputation.state != "ok":
        what = {
            "paused": "Direct emails are paused",
            "warn": "Direct emails will be paused if this goes on",
        }[reputation.state]
        text = f"{what}: {rates(reputation)}."
        yield Concern(reputation.state, text, "See what bounced", below_team("reputation"))
    if not team.sandbox and not team.domains:
        yield Concern("pending", "There is no domain to send from.", "Domains & senders", below_team("domain"))
    for domain in team.domains.values():
        here = below_team("domain", domain.id)
        if not domain.verified:
            what, why = f"{domain.name} is not verified", "nothing can be sent from it."
            yield Concern("unverified", what, "See its records", here, everywhere=True, why=why)
        elif not domain.approved:
            yield Concern("pending", f"{domain.name} waits for an operator's approval.", "See the domain", here)


def _money(team: Team, account: Account, now: int) -> Iterator[Concern]:
    record = team.record
    if account.available < record.credit_low:
        text = f"The credit is low, {money(account.available, record.currency)} left."
        yield Concern("low", text, "Billing", below_team("credit"), everywhere=True)
    if 0 < record.email_quota <= used_this_month(account, now):
        text = "This month's email quota is used up: priced templates cost credit now."
        yield Concern("low", text, "Billing", below_team("credit"))


def used_this_month(account: Account, now: int) -> int:
    return account.used if account.month == month_of(now) else 0
