"""Alerts for teams and operators, most severe first; each links to the page where the problem is fixed."""

from collections.abc import Iterable, Iterator

import msgspec

from heliograph.dashboard.render import CHANNEL_NAMES, format_currency, names_with_verb
from heliograph.domain.accounts.idp_groups import OPERATOR, READ_ONLY
from heliograph.domain.delivery.circuit import Circuit
from heliograph.domain.delivery.routing import simulated_channels
from heliograph.domain.mail.reputation import Reputation, describe_rates
from heliograph.domain.sending.pricing import Account, month_of
from heliograph.domain.setup.records import Team
from heliograph.domain.setup.snapshot import Setup
from heliograph.texts.dashboard_links import OPERATOR as OPERATOR_PATH
from heliograph.texts.dashboard_links import operator_page, path_in_team

# States of alerts that are on every page, most severe first
SEVERITIES = ("suspended", "paused", "unverified", "low", "simulated")


class Alert(msgspec.Struct, frozen=True):
    status: str  # status label of the badge
    title: str
    link_text: str  # text of the link
    link: str  # relative to the team's pages, or absolute
    on_every_page: bool = False  # False: only on the overview
    explanation: str = ""  # appended to `title` where there is space

    @property
    def text(self) -> str:
        return f"{self.title}: {self.explanation}" if self.explanation else self.title


# `role` is the reader's instance role. An alert links to the page where the problem is fixed if the role may fix it,
# otherwise to a page that shows the problem.


def instance_alerts(setup: Setup, circuits: Iterable[Circuit], role: str) -> Iterator[Alert]:
    if setup.platform.paused:
        explanation, reason = "messages are accepted and queued.", setup.platform.paused_reason
        if role and reason:
            explanation = f"{reason}. Messages are accepted and queued."
        link_by_role = {
            OPERATOR: ("Resume delivery", operator_page("delivery")),
            READ_ONLY: ("View queues", operator_page("delivery")),
            "": ("View queue", path_in_team("queued")),
        }
        yield Alert("paused", "Delivery is paused", *link_by_role[role], on_every_page=True, explanation=explanation)
    for circuit in circuits if role else ():
        text = f"The carrier {circuit.id} is unreachable: {circuit.reason or 'no response'}."
        yield Alert("failed", text, "View carriers", operator_page("carrier"))


def channel_alerts(setup: Setup, role: str) -> Iterator[Alert]:
    """Yield an alert if any channel is simulated, so that its messages never leave this instance."""
    if names := [CHANNEL_NAMES[channel] for channel in simulated_channels(setup.carriers)]:
        explanation = "no real messages are sent, even if marked Delivered."
        link_by_role = {
            OPERATOR: ("Add a carrier", operator_page("carrier") + "/new"),
            READ_ONLY: ("View carriers", operator_page("carrier")),
            "": ("Open test inbox", path_in_team("inbox")),
        }
        yield Alert(
            "simulated",
            f"{names_with_verb(names)} simulated",
            *link_by_role[role],
            on_every_page=True,
            explanation=explanation,
        )


def page_alerts(setup: Setup, team: Team | None, account: Account | None, now: int, role: str) -> list[Alert]:
    """Return the alerts on every page of `team`; without a team, those on every operator page."""
    result = [*instance_alerts(setup, (), role)]
    if team and account:
        result += [*channel_alerts(setup, role), *team_alerts(team, None, account, {}, now, role)]
    return sorted((alert for alert in result if alert.on_every_page), key=lambda alert: SEVERITIES.index(alert.status))


def team_alerts(
    team: Team,
    reputation: Reputation | None,
    account: Account,
    failing_webhooks: dict[str, int],
    now: int,
    role: str,
) -> Iterator[Alert]:
    """Yield the alerts of a team. `failing_webhooks`: webhook id → time since which it has been failing."""
    if team.record.suspended:
        link_by_role = {
            OPERATOR: ("Resume team", f"{OPERATOR_PATH}/teams/{team.record.id}"),
            READ_ONLY: ("View team", f"{OPERATOR_PATH}/teams/{team.record.id}"),
            "": ("Ask an operator", path_in_team("member")),
        }
        yield Alert(
            "suspended",
            "This team is suspended",
            *link_by_role[role],
            on_every_page=True,
            explanation="it can't send messages.",
        )
    yield from _email_alerts(team, reputation)
    for hook in team.webhooks:
        if not hook.enabled and hook.disabled_reason:
            text = f"The webhook {hook.url} was disabled: {hook.disabled_reason}."
            yield Alert("failed", text, "View webhook", path_in_team("webhook", hook.id))
        elif hook.id in failing_webhooks:
            text = f"Deliveries to {hook.url} are failing."
            yield Alert("failed", text, "View deliveries", path_in_team("webhook", hook.id))
    if team.sandbox:
        text = "This team is in the sandbox. Messages only go to verified and simulated recipients."
        yield Alert("sandbox", text, "Go live", path_in_team("team"))
    else:
        yield from _credit_alerts(team, account, now)


def _email_alerts(team: Team, reputation: Reputation | None) -> Iterator[Alert]:
    if reputation and reputation.state != "ok":
        title = {
            "paused": "Direct emails are paused",
            "warn": "Direct emails will be paused if this continues",
        }[reputation.state]
        text = f"{title}: {describe_rates(reputation)}."
        yield Alert(reputation.state, text, "View bounces", path_in_team("reputation"))
    if not team.sandbox and not team.domains:
        yield Alert("pending", "You have no domain to send from.", "Domains & senders", path_in_team("domain"))
    for domain in team.domains.values():
        domain_link = path_in_team("domain", domain.id)
        if not domain.verified:
            title, explanation = f"{domain.name} is not verified", "you can't send from it."
            yield Alert(
                "unverified", title, "View DNS records", domain_link, on_every_page=True, explanation=explanation
            )
        elif not domain.approved:
            yield Alert("pending", f"{domain.name} is waiting for an operator's approval.", "View domain", domain_link)


def _credit_alerts(team: Team, account: Account, now: int) -> Iterator[Alert]:
    record = team.record
    if account.available < record.credit_low:
        text = f"Credit is low: {format_currency(account.available, record.currency)} left."
        yield Alert("low", text, "View billing", path_in_team("credit"), on_every_page=True)
    if 0 < record.email_quota <= emails_used_this_month(account, now):
        text = "You have used this month's free emails. Templates with a price are now charged."
        yield Alert("low", text, "View billing", path_in_team("credit"))


def emails_used_this_month(account: Account, now: int) -> int:
    return account.used if account.month == month_of(now) else 0
