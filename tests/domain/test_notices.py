"""Notices: recipients, rate limits and texts; names of other people are harmless in mail and chat."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.audit.actor import SERVICE, Actor
from heliograph.domain.mail.system_mail import SystemMail, build_content, render_html, render_text
from heliograph.domain.operations.notices import (
    HOURLY_MAX,
    NoticeRow,
    dead_letter_notice,
    mail_sizes,
    notice_for_entry,
    receives_notice,
)
from heliograph.domain.setup.records import Domain, Platform, Team, TeamRecord, Template, Webhook
from heliograph.domain.setup.snapshot import Setup
from heliograph.texts.notices import INSTANCE_KINDS, NOTICES_PER_MAIL_MAX, TEAM_KINDS, notice_text, to_chat, to_mail

BASE = "https://mail.example.com"
EVIL = 'Acme <script>alert("x")</script>\r\nBcc: all@evil.test'
SLACK, DISCORD = "https://hooks.slack.com/services/1", "https://discord.com/api/webhooks/1"
ADA = Actor(kind="person", id="usr_ada")
HOOK = Webhook(
    id="whk_1", team="team_a", url="https://x.test/secret", secret="", enabled=False, disabled_reason="days of failures"
)


def setup_of(name: str = "Acme") -> Setup:
    domain = Domain(id="dom_1", team="team_a", name="a.test", brand="A")
    template = Template(id="tpl_1", team="team_a", channel="email", name="Welcome")
    record = TeamRecord(ref=1, id="team_a", name=name)
    team = Team(record=record, domains={"a.test": domain}, templates={"tpl_1": template}, webhooks=(HOOK,))
    return Setup(teams={"team_a": team}, platform=Platform(brand="Sun"))


def notice(kind: str, **facts: str) -> NoticeRow:
    team = "" if kind in INSTANCE_KINDS else "team_a"
    return NoticeRow(name=f"{kind}/1", at=1, team=team, kind=kind, facts=facts)


ALL = {
    "approved": notice("approval", action="template.approve", subject="tpl_1", detail=""),
    "refused": notice("approval", action="domain.refuse", subject="a.test", detail="Not yours."),
    "template": notice("template", action="template.upstream_paused", subject="tpl_1", detail="FIRST_PAUSE"),
    "domain": notice("domain", action="domain.failed", subject="a.test", detail=""),
    "webhook": notice("webhook", action="webhook.disable", subject=HOOK.url, detail="whk_1: five days of failures"),
    "warned": notice("bounces", action="reputation.warn", subject="team_a", detail="of 300 emails 6% bounced"),
    "paused": notice("bounces", action="reputation.pause", subject="team_a", detail="of 300 emails 11% bounced"),
    "credit": notice("credit", credit="4.20", mark="5.00"),
    "dead letters": notice("dead_letters", count="3"),
    "platform": notice("platform", action="delivery.pause", subject="platform", detail="the database was turned back"),
    "sender": notice("platform", action="domain.failed", subject="sun.test", detail=""),
    "test": notice("test"),
}
PATHS = {
    "approved": "/dashboard/teams/team_a/templates/tpl_1",
    "refused": "/dashboard/teams/team_a/senders",
    "template": "/dashboard/teams/team_a/templates/tpl_1",
    "domain": "/dashboard/teams/team_a/senders/domains/dom_1",
    "webhook": "/dashboard/teams/team_a/webhooks/whk_1",
    "warned": "/dashboard/teams/team_a/messages?status=bounced",
    "paused": "/dashboard/teams/team_a/messages?status=bounced",
    "credit": "/dashboard/teams/team_a/billing",
    "dead letters": "/dashboard/operator/queues",
    "platform": "/dashboard/operator/queues",
    "sender": "/dashboard/operator/platform/sender",
    "test": "/dashboard/teams/team_a/notices",
}


@pytest.mark.parametrize("name", ALL)
def test_notice_of_each_kind_has_a_problem_and_a_fix(name: str) -> None:
    item = ALL[name]
    message = notice_text(item, setup_of(), BASE)
    whose = "Acme" if item.team else "Sun"
    assert message.subject.startswith(f"[{whose}] ") and whose in message.body and message.action
    assert message.url == BASE + PATHS[name]
    assert "secret" not in repr(message)
    mail = to_mail([item], setup_of(), BASE, "owner")
    text = render_text(mail)
    assert text.splitlines()[0] == f"{message.body} {message.action}"
    assert message.url in text and f"{BASE}/dashboard/account/notices" in text


@pytest.mark.parametrize("name", ALL)
def test_notice_escapes_hostile_names(name: str) -> None:
    item = replace(ALL[name], facts=dict.fromkeys(ALL[name].facts, EVIL) | _shown_facts(ALL[name]))
    content = build_content(to_mail([item], setup_of(EVIL), BASE, "owner"), Platform(), "ada@example.com")
    assert not set("\r\n") & set(content.subject)
    assert content.html and "<script" not in content.html and "evil.test" not in content.subject.split("]")[0]
    links = [part.split('"')[0] for part in content.html.split('href="')[1:]]
    assert links and all(link.startswith(BASE) for link in links)
    assert content.headers["List-Unsubscribe"] == f"<{BASE}/dashboard/account/notices>"


def _shown_facts(row: NoticeRow) -> dict[str, str]:
    return {field: row.facts[field] for field in ("action", "count") if field in row.facts}


def test_notices_above_the_list_limit_are_one_mail_with_a_count() -> None:
    mail = to_mail([ALL["credit"]] * (NOTICES_PER_MAIL_MAX + 5), setup_of(), BASE, "owner")
    assert mail.subject == f"[Sun] {NOTICES_PER_MAIL_MAX + 5} notices"
    assert len(mail.items) == NOTICES_PER_MAIL_MAX + 1 and mail.items[-1] == "and 5 more"
    assert "and 5 more" in render_text(mail) and "<li>and 5 more</li>" in render_html(mail, "Sun")


def test_chat_notice_fits_the_limit_and_mentions_nobody() -> None:
    item = replace(ALL["refused"], facts=ALL["refused"].facts | {"detail": "<!channel> @everyone & co"})
    slack = json.loads(to_chat([item], setup_of(), BASE, SLACK))
    assert list(slack) == ["text"] and "&lt;!channel&gt;" in slack["text"] and "@everyone" not in slack["text"]
    discord = json.loads(to_chat([item], setup_of(), BASE, DISCORD))
    assert discord["allowed_mentions"] == {"parse": []} and "<!channel>" in discord["content"]
    assert "text" in json.loads(to_chat([item], setup_of(), BASE, DISCORD + "/slack"))
    assert "25 notices" in json.loads(to_chat([item] * 25, setup_of(), BASE, SLACK))["text"]


@pytest.mark.parametrize(
    ("action", "actor", "team", "kind"),
    [
        ("template.approve", ADA, "team_a", "approval"),
        ("display_name.refuse", ADA, "team_a", "approval"),
        ("team.approve", ADA, "team_a", "approval"),
        ("domain.failed", SERVICE, "team_a", "domain"),
        ("domain.failed", SERVICE, None, "platform"),
        *((f"template.upstream_{status}", SERVICE, "team_a", "template") for status in ("rejected", "approved")),
        ("template.upstream_pending", SERVICE, "team_a", None),
        ("template.upstream_quality", SERVICE, "team_a", None),
        ("webhook.disable", SERVICE, "team_a", "webhook"),
        ("webhook.disable", ADA, "team_a", None),  # the person who made the change gets no notice
        ("reputation.warn", SERVICE, "team_a", "bounces"),
        ("reputation.pause", SERVICE, "team_a", "bounces"),
        ("reputation.clear", SERVICE, "team_a", None),
        ("delivery.pause", SERVICE, None, "platform"),
        ("delivery.pause", ADA, None, None),
        ("chat.test", ADA, "team_a", None),
        ("account.notices", ADA, None, None),
    ],
)
def test_audit_entries_that_need_a_notice_get_one(
    action: str, actor: Actor, team: str | None, kind: str | None
) -> None:
    result = notice_for_entry(actor.audit_entry(5, action, "subject", team=team))
    assert (result.kind if result else None) == kind
    assert result is None or kind in (TEAM_KINDS if team else INSTANCE_KINDS)


def test_dead_letter_notice_is_sent_once_an_hour() -> None:
    hour = 3_600_000
    assert (
        dead_letter_notice(1, hour).name
        == dead_letter_notice(9, 2 * hour - 1).name
        != dead_letter_notice(1, 2 * hour).name
    )


@pytest.mark.parametrize(
    ("role", "chosen", "told"),
    [
        ("owner", None, True),
        ("developer", None, True),
        ("viewer", None, False),
        ("operator", None, True),
        ("viewer", 1, True),
        ("owner", 0, False),
        (None, 1, False),
    ],
)
def test_notice_goes_to_the_roles_that_chose_it(role: str | None, chosen: int | None, told: bool) -> None:
    assert receives_notice(role, chosen) is told


@pytest.mark.parametrize(
    ("waiting", "sent", "sizes"),
    [
        (1, 0, [1]),
        (9, 0, [1] * 9),
        (10, 0, [1] * 10),
        (11, 0, [1] * 9 + [2]),
        (1, 9, [1]),
        (50, 9, [50]),
        (50, 10, []),
        (3, 99, []),
        (0, 0, []),
    ],
)
def test_notices_above_ten_an_hour_are_summarized_in_the_last(waiting: int, sent: int, sizes: list[int]) -> None:
    assert mail_sizes(waiting, sent) == sizes
    assert len(sizes) + sent <= max(HOURLY_MAX, sent)


def test_notice_mail_has_the_expected_parts() -> None:
    values: dict[str, Any] = {"subject": "S", "summary": "A.", "action": "Do.", "code": "123456", "footer": "End."}
    text = render_text(SystemMail(**values, button=("Go", f"{BASE}/x?a=1&b=2")))
    assert text == f"A. Do.\n\n123456\n\nGo:\n{BASE}/x?a=1&b=2\n\nEnd.\n"
    html = render_html(SystemMail(**values, button=("Go", f"{BASE}/x?a=1&b=2")), "Sun")
    assert f'href="{BASE}/x?a=1&amp;b=2"' in html and "<table" not in html and "<img" not in html
    assert "prefers-color-scheme: dark" in html


def test_notice_quotes_a_request_that_is_a_sentence() -> None:
    wish = "Send SMS as Acme to GB, instead of AcmeLtd"
    actual = notice_text(notice("approval", action="sender_id.approve", subject=wish, detail=""), setup_of(), BASE)
    assert actual.subject.endswith(f"Approved: “{wish}”")
    assert actual.body.startswith(f"“{wish}” (SMS sender ID of ")
