"""Long names, addresses and words, which people and their languages have: nothing is wider than a desk or a phone."""

from typing import Any

import pytest

from tests.dashboard.conftest import Shoot, Site, fits
from tests.service import until

TEAM, OPERATOR = "/dashboard/teams/team_acme", "/dashboard/operator"
WORD = "Rindfleischetikettierungsueberwachungsaufgabenuebertragungsgesetz"
DOMAIN = "an-extremely-long-subdomain-name-for-a-test.of-pages.example-company.example.com"
ADDRESS = f"a.very.long.mailbox.name.with.many.words.in.it.and.without.end@{DOMAIN}"
TAGGED = "failed+a-tag-that-is-as-long-as-a-local-part-may-be@simulator.test"
MAIL: dict[str, Any] = {"from": "hi@acme.test", "subject": f"{WORD} {WORD}", "text": WORD}


@pytest.fixture
def album(site: Site) -> list[str]:
    """Pages with such data; answers their paths."""
    service = site.service
    sends: list[dict[str, Any]] = [
        {"to": [ADDRESS, TAGGED]},
        {"to": ADDRESS, "cc": [TAGGED], "tags": {"a_tag_with_a_long_name": WORD}},
    ]
    messages = [service.post("/v1/emails", MAIL | send).json["id"] for send in sends]
    hook = service.post("/v1/webhooks", {"url": f"http://127.0.0.1:9/{WORD}/{WORD}", "events": ["*"]}).json["id"]
    domain = service.post("/v1/domains", {"name": DOMAIN}).json["id"]
    assert service.post("/v1/keys", {"name": WORD, "scopes": ["send"]}).status == 201
    assert service.post("/v1/suppressions", {"email": ADDRESS}).status == 201
    until(lambda: all(service.get(f"/v1/emails/{id_}").json["status"] != "sending" for id_ in messages))
    lists = (
        "",
        "/messages",
        "/suppressions",
        "/webhooks",
        "/events",
        "/keys",
        "/senders",
        "/audit",
        "/requests",
        "/inbox",
    )
    ones = (*(f"/messages/{id_}" for id_ in messages), f"/webhooks/{hook}", f"/senders/domains/{domain}")
    asked = (f"/suppressions/remove?email={ADDRESS}", f"/messages?q={ADDRESS}", f"/search?q={ADDRESS}")
    return [
        *(TEAM + place for place in (*lists, *ones, *asked)),
        OPERATOR,
        f"{OPERATOR}/teams/team_acme",
        f"{OPERATOR}/audit",
    ]


def test_what_is_long_fits(site: Site, album: list[str], shoot: Shoot) -> None:
    page = site.open("ada@example.com", "--operator", "--team", "team_acme", "--role", "owner", path=TEAM)
    for number, path in enumerate(album):
        page.goto(path)
        fits(page, shoot, f"long-{number}")
