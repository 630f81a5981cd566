"""Postmark beyond sending, as its own library for Node and postmarker ask for it."""

import json
import os
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from heliograph.compat.postmark.codec import LOOKED
from tests.api.sends import EMAIL
from tests.npm import install
from tests.service import PATIENCE_S, TOKENS, Answer, Service, until

PREFIX = "/compat/postmark"
MAIL: dict[str, Any] = {"From": "Acme <hello@acme.test>", "Subject": "Hello", "TextBody": "Hi"}


def ask(service: Service, method: str, path: str, body: Any = None, key: str = "ACME") -> Answer:
    return service.ask(method, PREFIX + path, body, key=None, headers={"X-Postmark-Server-Token": TOKENS[key]})


def get(service: Service, path: str) -> Any:
    answer = ask(service, "GET", path)
    assert answer.status == 200, answer.raw
    return answer.json


def send(service: Service, to: str, **more: Any) -> str:
    answer = ask(service, "POST", "/email", MAIL | {"To": to} | more)
    assert answer.status == 200, answer.raw
    return str(answer.json["MessageID"])


def bounce(service: Service, message: str) -> Any:
    """Of this message, once it is there."""
    return until(lambda: get(service, f"/bounces?count=1&offset=0&messageID={message}")["Bounces"])[0]


# -- every call ---------------------------------------------------------------------------------------------------


def test_the_table_of_calls_is_true(shared_service: Service, tmp_path: Path) -> None:
    """Of Postmark's library for Node, all of them: a refusal is in words, and none is a fault."""
    node = install(tmp_path, "Postmark's library for Node")
    bounced = send(shared_service, "bounced@simulator.test")
    known = {"bounced": bounced, "bounce": bounce(shared_service, bounced)["ID"]}
    url = f"http://127.0.0.1:{shared_service.ports[-1]}{PREFIX}"
    program = shutil.copy("tests/compat/postmark_calls.mjs", str(node))
    env = os.environ | {"POSTMARK_URL": url, "POSTMARK_KEY": TOKENS["ACME"]}
    ran = subprocess.run(
        ["node", program, json.dumps(known)], env=env, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    text = Path("docs/compat.md").read_text("utf-8").partition("postmark calls: begin -->")[2].partition("<!--")[0]
    rows = [row.split("|") for row in re.findall(r"^\| `.*$", text, re.MULTILINE)]
    states = {name: "works" in state for _, names, state, *_ in rows for name in re.findall(r"`(\w+)`", names)}
    assert {name: "answer" in one for name, one in told.items()} == states, told
    refused = [one["refused"] for one in told.values() if "refused" in one]
    assert all(one["status"] in (404, 405) and one["code"] == 300 and one["message"] for one in refused), refused


# -- messages -----------------------------------------------------------------------------------------------------


def test_messages(shared_service: Service) -> None:
    to, more = "list@simulator.test", {"Cc": "Bo <cc@simulator.test>", "Bcc": "bcc@simulator.test"}
    first = send(shared_service, to, Subject="First", Tag="listed", Metadata={"order": "17"})
    second = send(shared_service, f"Ada <{to}>", Subject="Second", Tag="listed", HtmlBody="<p>Hi</p>", **more)
    every = get(shared_service, "/messages/outbound?count=500&offset=0&tag=listed")
    assert [one["MessageID"] for one in every["Messages"]] == [second, first] and every["TotalCount"] == 2
    for query, found in {
        "tag=listed&count=1&offset=1": [first],
        f"recipient={to}&subject=SECOND": [second],
        f"recipient={to}&fromemail=hello@acme": [second, first],
        "tag=listed&metadata_order=17": [first],
        "tag=listed&metadata_order=18": [],
        "tag=listed&todate=2020-01-01": [],
        "tag=listed&fromdate=2020-01-01T00:00:00&todate=2090-01-01": [second, first],
    }.items():
        assert [one["MessageID"] for one in get(shared_service, f"/messages/outbound?{query}")["Messages"]] == found, (
            query
        )
    until(lambda: get(shared_service, "/messages/outbound?tag=listed&status=sent")["TotalCount"] == 2)
    told = get(shared_service, f"/messages/outbound/{second}/details")
    assert (told["Subject"], told["HtmlBody"], told["TextBody"]) == ("Second", "<p>Hi</p>", "Hi")
    assert (told["From"], told["To"]) == ("Acme <hello@acme.test>", [{"Email": to, "Name": "Ada"}])
    assert told["Cc"] == [{"Email": "cc@simulator.test", "Name": "Bo"}]
    assert told["Recipients"] == [to, "cc@simulator.test", "bcc@simulator.test"]
    details = f"/messages/outbound/{second}/details"
    events = until(lambda: [one for one in get(shared_service, details)["MessageEvents"] if one["Recipient"] == to])
    assert events[0]["Type"] == "Delivered"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/messages/outbound?count=501", 422, 403),
        (f"/messages/outbound?count=1&offset={LOOKED}", 422, 403),
        ("/messages/outbound?count=x", 422, 403),
        ("/messages/outbound?status=lost", 422, 403),
        ("/messages/outbound?recipient=ada", 422, 403),
        ("/messages/outbound?fromdate=monday", 422, 403),
        ("/messages/outbound?messagestream=news", 422, 1226),
        ("/messages/outbound/eml_nothing/details", 422, 701),
        ("/messages/outbound/sms_nothing/dump", 422, 701),
        ("/bounces?messagestream=news", 422, 1226),
        ("/bounces/17", 422, 407),
        ("/bounces/evt_x/dump", 422, 407),
        ("/messages/inbound", 404, 300),
        ("/bounces/tags", 404, 300),
        ("/data-removals/1", 404, 300),
        ("/nothing", 404, 300),
    ],
)
def test_refusals(shared_service: Service, path: str, status: int, code: int) -> None:
    told = ask(shared_service, "GET", path)
    assert (told.status, told.json["ErrorCode"]) == (status, code), told.raw
    assert told.json.keys() == {"ErrorCode", "Message"}


# -- bounces ------------------------------------------------------------------------------------------------------


def test_bounces(shared_service: Service) -> None:
    id_ = send(shared_service, "bounced@simulator.test", Tag="back", Bcc="complained@simulator.test")
    until(lambda: get(shared_service, f"/bounces?messageid={id_}")["TotalCount"] == 2)
    hard = get(shared_service, f"/bounces?messageid={id_}&type=HardBounce")["Bounces"]
    spam = get(shared_service, f"/bounces?tag=back&emailFilter=COMPLAINED&messageid={id_}")["Bounces"]
    assert [(one["Email"], one["Type"], one["MessageID"], one["Tag"]) for one in hard + spam] == [
        ("bounced@simulator.test", "HardBounce", id_, "back"),
        ("complained@simulator.test", "SpamComplaint", id_, "back"),
    ]
    assert get(shared_service, f"/bounces/{hard[0]['ID']}") == hard[0]
    numbers = {str(one["ID"]) for one in hard + spam}
    events = get(shared_service, f"/messages/outbound/{id_}/details")["MessageEvents"]
    assert {one["Details"]["BounceID"] for one in events if one["Type"] == "Bounced"} >= numbers
    counted = get(shared_service, "/deliverystats")["Bounces"]
    assert {one.get("Type") for one in counted} >= {None, "HardBounce", "SpamComplaint"}


def test_a_bounce_is_activated(shared_service: Service) -> None:
    """Of an address that was suppressed while the mail waited."""
    email = "held@simulator.test"
    due = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    id_ = shared_service.post("/v1/emails", EMAIL | {"to": email, "scheduled_at": due}).json["id"]
    shared_service.post("/v1/suppressions", {"email": email})
    found = bounce(shared_service, id_)
    assert (found["Type"], found["Inactive"], found["CanActivate"]) == ("ManuallyDeactivated", True, True)
    assert ask(shared_service, "PUT", f"/bounces/{found['ID']}/activate", {}, "ACME_SEND").status == 401
    told = ask(shared_service, "PUT", f"/bounces/{found['ID']}/activate", {}).json
    assert (told["Message"], told["Bounce"]["Inactive"]) == ("OK", False)
    assert shared_service.get(f"/v1/suppressions/{email}").status == 404
    assert get(shared_service, f"/bounces/{found['ID']}")["Inactive"] is False


# -- suppressions and statistics ----------------------------------------------------------------------------------


def test_suppressions(shared_service: Service) -> None:
    path, email = "/message-streams/outbound/suppressions", "Stream@example.com"
    given = {"Suppressions": [{"EmailAddress": email}, {"EmailAddress": "no"}]}
    told = ask(shared_service, "POST", path, given).json["Suppressions"]
    assert [(one["EmailAddress"], one["Status"]) for one in told] == [(email, "Suppressed"), ("no", "Failed")]
    for query, found in {
        "emailaddress=stream@example.com": 1,
        "EmailAddress=stream@example.co": 0,
        "emailaddress=stream@example.com&suppressionReason=ManualSuppression&origin=Customer": 1,
        "emailaddress=stream@example.com&suppressionreason=HardBounce": 0,
        "emailaddress=stream@example.com&todate=2020-01-01": 0,
    }.items():
        assert len(get(shared_service, f"{path}/dump?{query}")["Suppressions"]) == found, query
    assert email in {one["EmailAddress"] for one in get(shared_service, f"{path}/dump")["Suppressions"]}
    told = ask(shared_service, "POST", f"{path}/delete", given).json["Suppressions"]
    assert [(one["EmailAddress"], one["Status"]) for one in told] == [(email, "Deleted"), ("no", "Failed")]
    assert shared_service.get(f"/v1/suppressions/{email}").status == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/message-streams/news/suppressions", {"Suppressions": []}, 422, 1226),
        ("/message-streams/outbound/suppressions", {"Suppressions": [{"EmailAddress": "a@b.test"}] * 51}, 422, 403),
        ("/message-streams/outbound/suppressions", {}, 422, 403),
        ("/message-streams/outbound/archive", {}, 404, 300),
        ("/message-streams", {}, 405, 300),
        ("/templates", {"Subject": "Hi", "TextBody": "Hi"}, 422, 403),
        ("/templates", {"Name": "A", "Subject": "Hi {{#each}}", "TextBody": "Hi"}, 422, 403),
        ("/templates", {"Name": "A", "Subject": "Hi", "TextBody": "Hi", "LayoutTemplate": "l"}, 422, 403),
        ("/templates", {"Name": "A", "Subject": "Hi", "TextBody": "Hi", "Alias": "welcome"}, 422, 403),
        ("/webhooks", {"Triggers": {"Bounce": {"Enabled": True}}}, 422, 403),
        ("/webhooks", {"Url": "http://127.0.0.1:9/", "Triggers": {"Open": {"Enabled": True}}}, 422, 403),
        ("/webhooks", {"Url": "http://127.0.0.1:9/", "HttpHeaders": [{"Name": "a", "Value": "b"}]}, 422, 403),
    ],
)
def test_changes_that_are_refused(shared_service: Service, path: str, body: Any, status: int, code: int) -> None:
    told = ask(shared_service, "POST", path, body)
    assert (told.status, told.json["ErrorCode"]) == (status, code), told.raw
    assert told.json.keys() == {"ErrorCode", "Message"}


def test_statistics(shared_service: Service) -> None:
    """Of this day, which may end while they are read."""
    send(shared_service, "complained@simulator.test")
    until(lambda: get(shared_service, "/stats/outbound/spam")["SpamComplaint"])
    before = get(shared_service, "/stats/outbound/sends")
    send(shared_service, "bounced@simulator.test")
    until(lambda: get(shared_service, "/stats/outbound/sends")["Sent"] > before["Sent"])
    sends, bounces = (get(shared_service, f"/stats/outbound/{name}") for name in ("sends", "bounces"))
    assert sum(day["Sent"] for day in sends["Days"]) == sends["Sent"]
    assert bounces["HardBounce"] > 0 and bounces["Days"][-1]["Date"] >= datetime.now(UTC).date().isoformat()[:4]
    overview = get(shared_service, "/stats/outbound")
    assert overview["Sent"] >= sends["Sent"] and overview["Opens"] == 0 and 0 < overview["BounceRate"] <= 100
    assert get(shared_service, "/stats/outbound/sends?todate=2020-01-01") == {"Days": [], "Sent": 0}
    assert ask(shared_service, "GET", "/stats/outbound?tag=a").json["ErrorCode"] == 403


# -- templates and webhooks ---------------------------------------------------------------------------------------


def test_templates(shared_service: Service) -> None:
    words = {"Name": "Receipt", "Alias": "pm-receipt", "Subject": "For {{name}}", "HtmlBody": "<p>{{ name }}</p>"}
    made = ask(shared_service, "POST", "/templates/", words).json
    assert (made["Name"], made["Alias"], made["Active"]) == ("Receipt", "pm-receipt", True), made
    for id_ in (made["TemplateId"], "pm-receipt"):
        shown = get(shared_service, f"/templates/{id_}")
        assert (shown["Subject"], shown["HtmlBody"]) == ("For {{name}}", "<p>{{name}}</p>")
    edited = ask(shared_service, "PUT", "/templates/pm-receipt", {"Subject": "To {{name}}"}).json
    assert edited["TemplateId"] == made["TemplateId"]
    mail = {"From": MAIL["From"], "To": "delivered@simulator.test", "TemplateModel": {"name": "Ada"}}
    sent = ask(shared_service, "POST", "/email/withTemplate", mail | {"TemplateId": made["TemplateId"]}).json
    assert shared_service.get(f"/v1/emails/{sent['MessageID']}").json["subject"] == "To Ada"
    assert ask(shared_service, "DELETE", f"/templates/{made['TemplateId']}").json["ErrorCode"] == 0
    assert ask(shared_service, "GET", "/templates/pm-receipt").json["ErrorCode"] == 1101


def test_a_template_is_validated(shared_service: Service) -> None:
    words = {"Subject": "Hi {{name}}", "HtmlBody": "<p>{{name}}, {{city}}</p>", "TestRenderModel": {"name": "A & B"}}
    told = ask(shared_service, "POST", "/templates/validate", words).json
    assert told["AllContentIsValid"] and told["TextBody"] is None
    assert told["Subject"]["RenderedContent"] == "Hi A & B"
    assert told["HtmlBody"]["RenderedContent"] == "<p>A &amp; B, city_Value</p>"
    assert told["SuggestedTemplateModel"] == {"name": "name_Value", "city": "city_Value"}
    told = ask(shared_service, "POST", "/templates/validate", words | {"Subject": "{{#if}}"}).json
    assert (told["AllContentIsValid"], told["Subject"]["ContentIsValid"]) == (False, False)
    assert told["Subject"]["ValidationErrors"][0]["Message"] and told["HtmlBody"]["ContentIsValid"]


def test_webhooks(shared_service: Service) -> None:
    given = {"Url": "http://127.0.0.1:9/a@b", "Triggers": {"Bounce": {"Enabled": True}, "Open": {"Enabled": True}}}
    made = ask(shared_service, "POST", "/webhooks", given).json
    assert made["HttpAuth"]["Username"] == "heliograph" and made["HttpAuth"]["Password"].startswith("whsec_")
    path = f"/webhooks/{made['ID']}"
    change = {"HttpAuth": {"Username": "me", "Password": "a:b@c"}, "Triggers": {"SpamComplaint": {"Enabled": True}}}
    shown = ask(shared_service, "PUT", path, change).json
    assert (shown["Url"], shown["HttpAuth"]) == (given["Url"], None)
    heard = {name for name, trigger in shown["Triggers"].items() if trigger["Enabled"]}
    assert heard == {"Bounce", "SpamComplaint"}
    assert shown == get(shared_service, path) and shown in get(shared_service, "/webhooks")["Webhooks"]
    assert ask(shared_service, "DELETE", path).json["ErrorCode"] == 0
    assert ask(shared_service, "GET", path).status == 404
