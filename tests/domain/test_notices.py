"""What is told to whom, how often, and in which words: names of others are harmless in mail and chat."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.audit.actor import SERVICE, Actor
from heliograph.domain.mail.system_mail import OwnMail, to_content, to_html, to_text
from heliograph.domain.operations.notices import HOURLY, NoticeRow, batches, dead_letters, is_told, of_entry
from heliograph.domain.setup.records import Domain, Platform, Team, TeamRecord, Template, Webhook
from heliograph.domain.setup.snapshot import Setup
from heliograph.texts.notices import INSTANCE_KINDS, LISTED, TEAM_KINDS, say, to_chat, to_mail

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


def happened(kind: str, **facts: str) -> NoticeRow:
    team = "" if kind in INSTANCE_KINDS else "team_a"
    return NoticeRow(name=f"{kind}/1", at=1, team=team, kind=kind, facts=facts)


ALL = {
    "approved": happened("approval", action="template.approve", subject="tpl_1", detail=""),
    "refused": happened("approval", action="domain.refuse", subject="a.test", detail="Not yours."),
    "template": happened("template", action="template.upstream_paused", subject="tpl_1", detail="FIRST_PAUSE"),
    "domain": happened("domain", action="domain.failed", subject="a.test", detail=""),
    "webhook": happened("webhook", action="webhook.disable", subject=HOOK.url, detail="whk_1: five days of failures"),
    "warned": happened("bounces", action="reputation.warn", subject="team_a", detail="of 300 emails 6 % bounced"),
    "paused": happened("bounces", action="reputation.pause", subject="team_a", detail="of 300 emails 11 % bounced"),
    "credit": happened("credit", credit="4.20", mark="5.00"),
    "dead letters": happened("dead_letters", count="3"),
    "platform": happened(
        "platform", action="delivery.pause", subject="platform", detail="the database was turned back"
    ),
    "sender": happened("platform", action="domain.failed", subject="sun.test", detail=""),
    "test": happened("test"),
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
def test_each_kind_says_what_happened_and_what_to_do(name: str) -> None:
    one = ALL[name]
    said = say(one, setup_of(), BASE)
    whose = "Acme" if one.team else "Sun"
    assert said.subject.startswith(f"[{whose}] ") and whose in said.said and said.todo
    assert said.url == BASE + PATHS[name]
    assert "secret" not in repr(said)
    mail = to_mail([one], setup_of(), BASE, "owner")
    text = to_text(mail)
    assert text.splitlines()[0] == f"{said.said} {said.todo}"
    assert said.url in text and f"{BASE}/dashboard/account/notices" in text


@pytest.mark.parametrize("name", ALL)
def test_hostile_names_stay_text(name: str) -> None:
    one = replace(ALL[name], facts=dict.fromkeys(ALL[name].facts, EVIL) | _kept(ALL[name]))
    content = to_content(to_mail([one], setup_of(EVIL), BASE, "owner"), Platform(), "ada@example.com")
    assert not set("\r\n") & set(content.subject)
    assert content.html and "<script" not in content.html and "evil.test" not in content.subject.split("]")[0]
    links = [part.split('"')[0] for part in content.html.split('href="')[1:]]
    assert links and all(link.startswith(BASE) for link in links)
    assert content.headers["List-Unsubscribe"] == f"<{BASE}/dashboard/account/notices>"


def _kept(one: NoticeRow) -> dict[str, str]:
    return {field: one.facts[field] for field in ("action", "count") if field in one.facts}


def test_many_are_one_mail_that_lists_so_many() -> None:
    mail = to_mail([ALL["credit"]] * (LISTED + 5), setup_of(), BASE, "owner")
    assert mail.subject == f"[Sun] {LISTED + 5} notices"
    assert len(mail.lines) == LISTED + 1 and mail.lines[-1] == "and 5 more"
    assert "and 5 more" in to_text(mail) and "<li>and 5 more</li>" in to_html(mail, "Sun")


def test_a_chat_gets_what_it_takes_and_nobody_is_called() -> None:
    one = replace(ALL["refused"], facts=ALL["refused"].facts | {"detail": "<!channel> @everyone & co"})
    slack = json.loads(to_chat([one], setup_of(), BASE, SLACK))
    assert list(slack) == ["text"] and "&lt;!channel&gt;" in slack["text"] and "@everyone" not in slack["text"]
    discord = json.loads(to_chat([one], setup_of(), BASE, DISCORD))
    assert discord["allowed_mentions"] == {"parse": []} and "<!channel>" in discord["content"]
    assert "text" in json.loads(to_chat([one], setup_of(), BASE, DISCORD + "/slack"))
    assert "25 notices" in json.loads(to_chat([one] * 25, setup_of(), BASE, SLACK))["text"]


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
        ("webhook.disable", ADA, "team_a", None),  # who did it knows
        ("reputation.warn", SERVICE, "team_a", "bounces"),
        ("reputation.pause", SERVICE, "team_a", "bounces"),
        ("reputation.clear", SERVICE, "team_a", None),
        ("delivery.pause", SERVICE, None, "platform"),
        ("delivery.pause", ADA, None, None),
        ("chat.test", ADA, "team_a", None),
        ("account.notices", ADA, None, None),
    ],
)
def test_which_entries_are_told(action: str, actor: Actor, team: str | None, kind: str | None) -> None:
    found = of_entry(actor.did(5, action, "subject", team=team))
    assert (found.kind if found else None) == kind
    assert found is None or kind in (TEAM_KINDS if team else INSTANCE_KINDS)


def test_dead_letters_are_told_once_an_hour() -> None:
    hour = 3_600_000
    assert dead_letters(1, hour).name == dead_letters(9, 2 * hour - 1).name != dead_letters(1, 2 * hour).name


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
def test_who_is_told(role: str | None, chosen: int | None, told: bool) -> None:
    assert is_told(role, chosen) is told


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
def test_ten_an_hour_and_the_last_tells_of_all_that_waits(waiting: int, sent: int, sizes: list[int]) -> None:
    assert batches(waiting, sent) == sizes
    assert len(sizes) + sent <= max(HOURLY, sent)


def test_the_parts_of_a_mail() -> None:
    given: dict[str, Any] = {"subject": "S", "said": "A.", "todo": "Do.", "code": "123456", "end": "End."}
    text = to_text(OwnMail(**given, button=("Go", f"{BASE}/x?a=1&b=2")))
    assert text == f"A. Do.\n\n123456\n\nGo:\n{BASE}/x?a=1&b=2\n\nEnd.\n"
    html = to_html(OwnMail(**given, button=("Go", f"{BASE}/x?a=1&b=2")), "Sun")
    assert f'href="{BASE}/x?a=1&amp;b=2"' in html and "<table" not in html and "<img" not in html
    assert "prefers-color-scheme: dark" in html


def test_what_was_asked_for_in_a_sentence_is_told_as_one() -> None:
    wish = "Send SMS as Acme to GB, instead of AcmeLtd"
    told = say(happened("approval", action="sender_id.approve", subject=wish, detail=""), setup_of(), BASE)
    assert told.subject.endswith(f"Approved: “{wish}”")
    assert told.said.startswith(f"“{wish}” (SMS sender ID of ")
