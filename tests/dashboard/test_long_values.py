"""Very long values (long.toml): nothing overflows or is cut off at desktop and phone width.

`make test` checks one page of each kind, `make proof PROOFS=access` all pages."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Shoot, Site, find_overflow
from tests.dashboard.test_access import LISTS
from tests.journeys.load import ask_database
from tests.proof.size import FULL
from tests.service import Service, until

LONG = Path(__file__).with_name("long.toml")
TEAM, OPERATOR, ZERO = "/dashboard/teams/team_acme", "/dashboard/operator", "/dashboard/teams/team_zero"
WORD = "Rindfleischetikettierungsueberwachungsaufgabenuebertragungsgesetz"
ADDRESS = f"a.very.long.mailbox.name.with.many.words.in.it.and.without.end@{WORD.lower()[:60]}.example.com"
TAGGED = "failed+a-tag-that-is-as-long-as-a-local-part-may-be@simulator.test"
TURNED = "شركة المصابيح العالمية 📚 👩🏽‍🚀"
MAIL: dict[str, Any] = {"from": "hi@acme.test", "subject": f"{WORD}{WORD}", "text": WORD}
SENDS: list[tuple[str, dict[str, Any]]] = [
    ("emails", MAIL | {"to": [ADDRESS, TAGGED], "subject": TURNED, "html": f"<p>{WORD}{WORD}</p>"}),
    ("emails", MAIL | {"to": ADDRESS, "cc": [TAGGED], "tags": {"a_tag_with_a_long_name": WORD}}),
    ("sms", {"to": "+447400123456", "template_id": "tpl_right_to_left", "variables": {"code": WORD}}),
]
MILLION = (
    "INSERT INTO figure (team, hour, channel, sent, delivered, bounced, complained, failed, read) SELECT t.team,"
    " {hour}, c.channel, 1234567890, 1000000000, 123456789, 12345678, 98765432, 1000000 FROM account t"
    " JOIN (SELECT 'email' AS channel UNION SELECT 'sms' UNION SELECT 'whatsapp') c ON true"
    " ON CONFLICT (team, hour, channel) DO UPDATE SET sent = excluded.sent, bounced = excluded.bounced",
    "UPDATE account SET used = 1234567890",
    "INSERT INTO carrier_use (carrier, minute, seat, accepted, refused, put_off, took_ms)"
    " VALUES ('sim-sms', {hour}, 'long', 123456789, 12345678, 1234567, 123456789012)",
)
# Pages with an id, by its key in `made`; `make test` checks those of SHAPES.
SINGLES = (
    *("/messages/{mail}", "/messages/{cc}", "/messages/{sms}", "/inbox/{mail}", "/inbox/{sms}", "/webhooks/{hook}"),
    *("/webhooks/{hook}/edit", "/senders/domains/dom_long", "/messages?q={address}", "/search?q={address}"),
    *("/suppressions/remove?email={address}", "/templates/tpl_long", "/templates/tpl_right_to_left"),
    *("/templates/tpl_long/edit", "/templates/tpl_right_to_left/edit", "/templates/tpl_long/test"),
    *("/templates/tpl_long/versions", "/templates/tpl_long/versions/1", "/layouts/lay_long", "/layouts/lay_long/edit"),
)
SHAPES = ("team_acme", "/messages", "/messages/{cc}", "/inbox/{mail}", "/senders", "/senders/domains/dom_long",
          "/keys", "/webhooks/{hook}", "/templates", "/templates/tpl_right_to_left/edit", "/billing", "/team",
          "/search?q={address}", "/audit", "/events", "/approvals", "/operator", "/carriers", "/people", "team_zero",
          "/settings")  # fmt: skip


@pytest.fixture(scope="module")
def made(running: Service) -> dict[str, str]:
    """Apply long.toml, send messages with it and write statistics in the millions; returns the ids."""
    webhooks = running.apply(LONG)["webhooks"]
    sent = [running.post(f"/v1/{channel}", body, key="LONG") for channel, body in SENDS]
    assert [response.code for response in sent] == [None] * len(SENDS)
    ids = [response.json["id"] for response in sent]
    hour = time.time_ns() // 3_600_000_000_000 * 3_600_000
    for statement in MILLION:
        ask_database(running.database, statement.format(hour=hour))
    until(lambda: all(running.get(f"/v1/emails/{id_}").json["status"] != "sending" for id_ in ids[:2]))
    return {"mail": ids[0], "cc": ids[1], "sms": ids[2], "hook": webhooks[0]["id"], "address": ADDRESS}


def test_long_values_fit_every_page(site: Site, made: dict[str, str], shoot: Shoot) -> None:
    site.add(ADDRESS, "--team", "team_acme", "--role", "viewer")
    page = site.open("ada@example.com", "--operator", "--team", "team_acme", "--role", "owner", path=TEAM)
    paths = [*LISTS, *(TEAM + item for item in SINGLES), ZERO, f"{OPERATOR}/teams/team_acme"]
    looked = [path for path in paths if FULL or path.endswith(SHAPES)]
    assert len(looked) >= len(SHAPES)
    faults = []
    for path in looked:
        page.goto(path.format(**made))
        faults += find_overflow(page, shoot, path.rpartition("dashboard/")[2].replace("/", "-"))
    assert not faults, "\n".join(faults)
