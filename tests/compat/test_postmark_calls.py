"""Postmark's calls besides sending, by its library for Node and by postmarker."""

import json
import os
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from heliograph.compat.postmark.codec import SEARCHED_MAX
from tests.api.sends import EMAIL
from tests.npm import install
from tests.service import PATIENCE_S, TOKENS, Answer, Service, until

PREFIX = "/compat/postmark"
MAIL: dict[str, Any] = {"From": "Acme <hello@acme.test>", "Subject": "Hello", "TextBody": "Hi"}


def send_request(service: Service, method: str, path: str, body: Any = None, key: str = "ACME") -> Answer:
    return service.ask(method, PREFIX + path, body, key=None, headers={"X-Postmark-Server-Token": TOKENS[key]})


def get(service: Service, path: str) -> Any:
    answer = send_request(service, "GET", path)
    assert answer.status == 200, answer.raw
    return answer.json


def send(service: Service, to: str, **more: Any) -> str:
    answer = send_request(service, "POST", "/email", MAIL | {"To": to} | more)
    assert answer.status == 200, answer.raw
    return str(answer.json["MessageID"])


def bounce(service: Service, message: str) -> Any:
    """Return the message's bounce, once it exists."""
    return until(lambda: get(service, f"/bounces?count=1&offset=0&messageID={message}")["Bounces"])[0]


# -- every call ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_documented_calls_work(shared_service: Service, tmp_path: Path) -> None:
    """All calls of Postmark's library for Node: refusals have a message, and none fails."""
    node = install(tmp_path, "Postmark's library for Node")
    bounced = send(shared_service, "bounced@simulator.test")
    existing = {"bounced": bounced, "bounce": bounce(shared_service, bounced)["ID"]}
    url = f"http://127.0.0.1:{shared_service.ports[-1]}{PREFIX}"
    program = shutil.copy("tests/compat/postmark_calls.mjs", str(node))
    env = os.environ | {"POSTMARK_URL": url, "POSTMARK_KEY": TOKENS["ACME"]}
    ran = subprocess.run(
        ["node", program, json.dumps(existing)], env=env, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ran.returncode == 0, ran.stderr
    results = json.loads(ran.stdout)
    text = Path("docs/compat.md").read_text("utf-8").partition("postmark calls: begin -->")[2].partition("<!--")[0]
    rows = [row.split("|") for row in re.findall(r"^\| `.*$", text, re.MULTILINE)]
    states = {name: "works" in state for _, names, state, *_ in rows for name in re.findall(r"`(\w+)`", names)}
    assert {name: "answer" in result for name, result in results.items()} == states, results
    refused = [result["refused"] for result in results.values() if "refused" in result]
    assert all(result["status"] in (404, 405) and result["code"] == 300 and result["message"] for result in refused), (
        refused
    )


# -- messages -----------------------------------------------------------------------------------------------------


def test_messages_are_listed_filtered_and_read(shared_service: Service) -> None:
    to, more = "list@simulator.test", {"Cc": "Bo <cc@simulator.test>", "Bcc": "bcc@simulator.test"}
    first = send(shared_service, to, Subject="First", Tag="listed", Metadata={"order": "17"})
    second = send(shared_service, f"Ada <{to}>", Subject="Second", Tag="listed", HtmlBody="<p>Hi</p>", **more)
    listing = get(shared_service, "/messages/outbound?count=500&offset=0&tag=listed")
    assert [message["MessageID"] for message in listing["Messages"]] == [second, first] and listing["TotalCount"] == 2
    for query, expected in {
        "tag=listed&count=1&offset=1": [first],
        f"recipient={to}&subject=SECOND": [second],
        f"recipient={to}&fromemail=hello@acme": [second, first],
        "tag=listed&metadata_order=17": [first],
        "tag=listed&metadata_order=18": [],
        "tag=listed&todate=2020-01-01": [],
        "tag=listed&fromdate=2020-01-01T00:00:00&todate=2090-01-01": [second, first],
    }.items():
        assert [
            message["MessageID"] for message in get(shared_service, f"/messages/outbound?{query}")["Messages"]
        ] == expected, query
    until(lambda: get(shared_service, "/messages/outbound?tag=listed&status=sent")["TotalCount"] == 2)
    message_details = get(shared_service, f"/messages/outbound/{second}/details")
    assert (message_details["Subject"], message_details["HtmlBody"], message_details["TextBody"]) == (
        "Second",
        "<p>Hi</p>",
        "Hi",
    )
    assert (message_details["From"], message_details["To"]) == (
        "Acme <hello@acme.test>",
        [{"Email": to, "Name": "Ada"}],
    )
    assert message_details["Cc"] == [{"Email": "cc@simulator.test", "Name": "Bo"}]
    assert message_details["Recipients"] == [to, "cc@simulator.test", "bcc@simulator.test"]
    details = f"/messages/outbound/{second}/details"
    events = until(
        lambda: [message for message in get(shared_service, details)["MessageEvents"] if message["Recipient"] == to]
    )
    assert events[0]["Type"] == "Delivered"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/messages/outbound?count=501", 422, 403),
        (f"/messages/outbound?count=1&offset={SEARCHED_MAX}", 422, 403),
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
def test_refused_read_has_the_error_code_of_postmark(
    shared_service: Service, path: str, status: int, code: int
) -> None:
    response = send_request(shared_service, "GET", path)
    assert (response.status, response.json["ErrorCode"]) == (status, code), response.raw
    assert response.json.keys() == {"ErrorCode", "Message"}


# -- bounces ------------------------------------------------------------------------------------------------------


def test_bounces_are_listed_filtered_and_read(shared_service: Service) -> None:
    id_ = send(shared_service, "bounced@simulator.test", Tag="back", Bcc="complained@simulator.test")
    until(lambda: get(shared_service, f"/bounces?messageid={id_}")["TotalCount"] == 2)
    hard = get(shared_service, f"/bounces?messageid={id_}&type=HardBounce")["Bounces"]
    spam = get(shared_service, f"/bounces?tag=back&emailFilter=COMPLAINED&messageid={id_}")["Bounces"]
    assert [(entry["Email"], entry["Type"], entry["MessageID"], entry["Tag"]) for entry in hard + spam] == [
        ("bounced@simulator.test", "HardBounce", id_, "back"),
        ("complained@simulator.test", "SpamComplaint", id_, "back"),
    ]
    assert get(shared_service, f"/bounces/{hard[0]['ID']}") == hard[0]
    numbers = {str(entry["ID"]) for entry in hard + spam}
    events = get(shared_service, f"/messages/outbound/{id_}/details")["MessageEvents"]
    assert {entry["Details"]["BounceID"] for entry in events if entry["Type"] == "Bounced"} >= numbers
    counts = get(shared_service, "/deliverystats")["Bounces"]
    assert {entry.get("Type") for entry in counts} >= {None, "HardBounce", "SpamComplaint"}


def test_a_bounce_is_activated(shared_service: Service) -> None:
    """The address was suppressed while the mail was waiting."""
    email = "held@simulator.test"
    send_at = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    id_ = shared_service.post("/v1/emails", EMAIL | {"to": email, "scheduled_at": send_at}).json["id"]
    shared_service.post("/v1/suppressions", {"email": email})
    record = bounce(shared_service, id_)
    assert (record["Type"], record["Inactive"], record["CanActivate"]) == ("ManuallyDeactivated", True, True)
    assert send_request(shared_service, "PUT", f"/bounces/{record['ID']}/activate", {}, "ACME_SEND").status == 401
    activated = send_request(shared_service, "PUT", f"/bounces/{record['ID']}/activate", {}).json
    assert (activated["Message"], activated["Bounce"]["Inactive"]) == ("OK", False)
    assert shared_service.get(f"/v1/suppressions/{email}").status == 404
    assert get(shared_service, f"/bounces/{record['ID']}")["Inactive"] is False


# -- suppressions and statistics ----------------------------------------------------------------------------------


def test_suppressions_are_added_listed_and_removed(shared_service: Service) -> None:
    path, email = "/message-streams/outbound/suppressions", "Stream@example.com"
    fields = {"Suppressions": [{"EmailAddress": email}, {"EmailAddress": "no"}]}
    results = send_request(shared_service, "POST", path, fields).json["Suppressions"]
    assert [(result["EmailAddress"], result["Status"]) for result in results] == [
        (email, "Suppressed"),
        ("no", "Failed"),
    ]
    for query, expected in {
        "emailaddress=stream@example.com": 1,
        "EmailAddress=stream@example.co": 0,
        "emailaddress=stream@example.com&suppressionReason=ManualSuppression&origin=Customer": 1,
        "emailaddress=stream@example.com&suppressionreason=HardBounce": 0,
        "emailaddress=stream@example.com&todate=2020-01-01": 0,
    }.items():
        assert len(get(shared_service, f"{path}/dump?{query}")["Suppressions"]) == expected, query
    assert email in {result["EmailAddress"] for result in get(shared_service, f"{path}/dump")["Suppressions"]}
    results = send_request(shared_service, "POST", f"{path}/delete", fields).json["Suppressions"]
    assert [(result["EmailAddress"], result["Status"]) for result in results] == [(email, "Deleted"), ("no", "Failed")]
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
def test_refused_change_has_the_error_code_of_postmark(
    shared_service: Service, path: str, body: Any, status: int, code: int
) -> None:
    response = send_request(shared_service, "POST", path, body)
    assert (response.status, response.json["ErrorCode"]) == (status, code), response.raw
    assert response.json.keys() == {"ErrorCode", "Message"}


def test_statistics_count_sends_and_bounces_by_day(shared_service: Service) -> None:
    """Statistics of today, which may end during the test."""
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
    assert send_request(shared_service, "GET", "/stats/outbound?tag=a").json["ErrorCode"] == 403


# -- templates and webhooks ---------------------------------------------------------------------------------------


def test_template_is_created_changed_and_sent(shared_service: Service) -> None:
    fields = {"Name": "Receipt", "Alias": "pm-receipt", "Subject": "For {{name}}", "HtmlBody": "<p>{{ name }}</p>"}
    created = send_request(shared_service, "POST", "/templates/", fields).json
    assert (created["Name"], created["Alias"], created["Active"]) == ("Receipt", "pm-receipt", True), created
    for id_ in (created["TemplateId"], "pm-receipt"):
        template = get(shared_service, f"/templates/{id_}")
        assert (template["Subject"], template["HtmlBody"]) == ("For {{name}}", "<p>{{name}}</p>")
    edited = send_request(shared_service, "PUT", "/templates/pm-receipt", {"Subject": "To {{name}}"}).json
    assert edited["TemplateId"] == created["TemplateId"]
    mail = {"From": MAIL["From"], "To": "delivered@simulator.test", "TemplateModel": {"name": "Ada"}}
    sent = send_request(
        shared_service, "POST", "/email/withTemplate", mail | {"TemplateId": created["TemplateId"]}
    ).json
    assert shared_service.get(f"/v1/emails/{sent['MessageID']}").json["subject"] == "To Ada"
    assert send_request(shared_service, "DELETE", f"/templates/{created['TemplateId']}").json["ErrorCode"] == 0
    assert send_request(shared_service, "GET", "/templates/pm-receipt").json["ErrorCode"] == 1101


def test_a_template_is_validated(shared_service: Service) -> None:
    fields = {"Subject": "Hi {{name}}", "HtmlBody": "<p>{{name}}, {{city}}</p>", "TestRenderModel": {"name": "A & B"}}
    result = send_request(shared_service, "POST", "/templates/validate", fields).json
    assert result["AllContentIsValid"] and result["TextBody"] is None
    assert result["Subject"]["RenderedContent"] == "Hi A & B"
    assert result["HtmlBody"]["RenderedContent"] == "<p>A &amp; B, city_Value</p>"
    assert result["SuggestedTemplateModel"] == {"name": "name_Value", "city": "city_Value"}
    result = send_request(shared_service, "POST", "/templates/validate", fields | {"Subject": "{{#if}}"}).json
    assert (result["AllContentIsValid"], result["Subject"]["ContentIsValid"]) == (False, False)
    assert result["Subject"]["ValidationErrors"][0]["Message"] and result["HtmlBody"]["ContentIsValid"]


def test_webhook_is_created_changed_and_deleted(shared_service: Service) -> None:
    fields = {"Url": "http://127.0.0.1:9/a@b", "Triggers": {"Bounce": {"Enabled": True}, "Open": {"Enabled": True}}}
    created = send_request(shared_service, "POST", "/webhooks", fields).json
    assert created["HttpAuth"]["Username"] == "heliograph" and created["HttpAuth"]["Password"].startswith("whsec_")
    path = f"/webhooks/{created['ID']}"
    change = {"HttpAuth": {"Username": "me", "Password": "a:b@c"}, "Triggers": {"SpamComplaint": {"Enabled": True}}}
    changed = send_request(shared_service, "PUT", path, change).json
    assert (changed["Url"], changed["HttpAuth"]) == (fields["Url"], None)
    enabled = {name for name, trigger in changed["Triggers"].items() if trigger["Enabled"]}
    assert enabled == {"Bounce", "SpamComplaint"}
    assert changed == get(shared_service, path) and changed in get(shared_service, "/webhooks")["Webhooks"]
    assert send_request(shared_service, "DELETE", path).json["ErrorCode"] == 0
    assert send_request(shared_service, "GET", path).status == 404
