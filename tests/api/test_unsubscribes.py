"""Categories of emails and unsubscribing: sends, the link, /v1/unsubscribes (contract 21)."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.api.sends import EMAIL, Body, assert_refused, settled
from tests.api.test_scheduled import time_from_now
from tests.service import Answer, Service, until, walked

NEWS: Body = EMAIL | {
    "category": "newsletter",
    "text": "Bye: {{unsubscribe_url}}",
    "html": "<p>{{unsubscribe_url}}</p>",
}
FIELDS = ("object", "id", "address", "category", "reason", "created_at")
SETUP = """
[[teams]]
id = "team_acme"
categories = ["newsletter", "offers"]

  [[teams.layouts]]
  id = "lay_unsubscribe"
  text = "{{content}} -- {{unsubscribe_url}}"

  [[teams.templates]]
  id = "tpl_newsletter"
  channel = "email"
  name = "Newsletter"
  category = "newsletter"
  layout = "lay_unsubscribe"
  subject = "News"
  html = '<a href="{{unsubscribe_url}}">Unsubscribe</a>'
  text = "News"
    [teams.templates.locales.de]
    subject = "Neues"
    html = '<a href="{{unsubscribe_url}}">Abmelden</a>'
    text = "Neues"
"""


@pytest.fixture
def service(shared_service: Service, tmp_path: Path) -> Service:
    file = tmp_path / "categories.toml"
    file.write_text(SETUP)
    shared_service.apply(file)
    return shared_service


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    return f"delivered+{re.sub('[^a-z0-9]+', '-', request.node.name)[:40]}@simulator.test"


def link_in(service: Service, **fields: Any) -> str:
    """Return the path of an email's unsubscribe link, from a dry run."""
    preview = service.post("/v1/emails?dry_run=true", NEWS | fields)
    assert preview.status == 200, preview.raw
    (url,) = set(re.findall(r"/unsubscribe/[A-Za-z0-9_-]+", preview.json["html"] + (preview.json["text"] or "")))
    return str(url)


def click(service: Service, path: str, body: bytes = b"List-Unsubscribe=One-Click") -> Answer:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return service.ask("POST", path, body, key=None, headers=headers)


def events(service: Service, type_: str, address: str) -> list[Any]:
    return [
        event["data"]
        for event in walked(service, "/v1/events")
        if event["type"] == type_ and event["data"]["address"] == address
    ]


def test_one_click_unsubscribes_from_the_category_only(service: Service, address: str) -> None:
    news = NEWS | {"to": address}
    path = link_in(service, to=address)
    assert service.post("/v1/emails", news).status == 202
    assert [click(service, path).status, click(service, path, b"anything").status] == [200, 200]
    refused = service.post("/v1/emails", news)
    assert_refused(refused, 403, "recipient_unsubscribed", "to")
    assert address in refused.json["error"]["message"]
    assert_refused(service.post("/v1/emails?dry_run=true", news), 403, "recipient_unsubscribed")
    for other in ({"category": "offers"}, {"category": None}):
        assert service.post("/v1/emails", news | other).status == 202
    entry = service.get(f"/v1/unsubscribes/{address}?category=newsletter").json
    assert (entry["address"], entry["category"], entry["reason"]) == (address, "newsletter", "link")
    assert until(lambda: len(events(service, "recipient.unsubscribed", address)) == 1)


@pytest.mark.parametrize("body", [b"", b"x" * 100_000, b'{"a": 1}'])
def test_any_post_to_the_link_unsubscribes(service: Service, address: str, body: bytes) -> None:
    path = link_in(service, to=address)
    assert service.ask("POST", path, body, key=None).status == 200
    assert service.get(f"/v1/unsubscribes/{address}").status == 200


ONE_CLICK_MULTIPART = b'--b\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n\r\nOne-Click\r\n--b--\r\n'


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("application/x-www-form-urlencoded", b"List-Unsubscribe=One-Click"),
        ("multipart/form-data; boundary=b", ONE_CLICK_MULTIPART),
    ],
    ids=["urlencoded", "multipart"],
)
def test_one_click_post_in_both_encodings(service: Service, address: str, type_: str, body: bytes) -> None:
    path = link_in(service, to=address)
    answer = service.ask("POST", path, body, key=None, headers={"Content-Type": type_})
    assert answer.status == 200
    assert not {"location", "set-cookie"} & set(answer.headers)  # RFC 8058, 3.2: no redirect, no cookie
    assert service.get(f"/v1/unsubscribes/{address}?category=newsletter").status == 200


def test_get_of_the_link_changes_nothing(service: Service, address: str) -> None:
    path = link_in(service, to=address)
    for method in ("HEAD", "OPTIONS", "GET"):  # prefetching clients and link scanners
        service.ask(method, path, key=None)
        service.ask(method, f"{path}?List-Unsubscribe=One-Click", key=None)
    page = service.ask("GET", path, key=None)
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b'<form method="post">' in page.raw
    assert b'lang="en"' in page.raw
    assert_refused(service.get(f"/v1/unsubscribes/{address}"), 404, "unsubscribe_not_found")


def test_page_is_in_the_locale_of_the_message(service: Service, address: str) -> None:
    fields = {"subject": None, "html": None, "text": None, "category": None, "template_id": "tpl_newsletter"}
    path = link_in(service, to=address, **fields, locale="de-AT")
    page = service.ask("GET", path, key=None).raw.decode()
    assert 'lang="de"' in page
    assert "Abmelden" in page


@pytest.mark.parametrize("token", ["x", "AAAA", "", "ÿ"])
def test_forged_link_is_not_found(service: Service, token: str) -> None:
    assert service.ask("POST", f"/unsubscribe/{token.encode().hex()}", b"", key=None).status == 404


def test_template_renders_the_url_in_all_parts_and_in_the_layout(service: Service, address: str) -> None:
    body = {"to": address, "from": "hello@acme.test", "template_id": "tpl_newsletter"}
    preview = service.post("/v1/emails?dry_run=true", body).json
    url = re.findall('href="(http[^"]+)"', preview["html"])[0]
    assert preview["text"] == f"News -- {url}"
    assert service.post("/v1/emails", body).status == 202
    assert click(service, url[url.index("/unsubscribe/") :]).status == 200
    assert_refused(service.post("/v1/emails", body), 403, "recipient_unsubscribed")
    assert service.post("/v1/emails", body | {"category": "offers"}).status == 202


def test_category_of_a_send_is_shown_by_get(service: Service, address: str) -> None:
    sent = service.post("/v1/emails", NEWS | {"to": address}).json
    assert "category" not in sent
    assert service.get(f"/v1/emails/{sent['id']}").json["category"] == "newsletter"


@pytest.mark.parametrize(
    "fields",
    [{"category": "unknown"}, {"category": ""}, {"category": "Newsletter"}, {"cc": ["a@example.com"]}],
)
def test_invalid_category_is_refused_after_the_recipients(service: Service, fields: Body) -> None:
    assert_refused(service.post("/v1/emails", NEWS | fields), 400, "invalid_request", "category")
    too_many = NEWS | fields | {"bcc": ["a@example.com"] * 51}
    assert_refused(service.post("/v1/emails", too_many), 400, "too_many_recipients")
    assert_refused(
        service.post("/v1/emails", NEWS | fields | {"tags": {"a b": "x"}}), 400, "invalid_request", "category"
    )


def test_template_with_a_category_takes_one_recipient(service: Service) -> None:
    body = {"to": ["a@example.com", "b@example.com"], "from": "hello@acme.test", "template_id": "tpl_newsletter"}
    assert_refused(service.post("/v1/emails", body), 400, "invalid_request", "category")


def test_suppression_is_refused_before_an_unsubscribe(service: Service) -> None:
    address = "suppressed+unsubscribed@simulator.test"
    assert service.post("/v1/unsubscribes", {"address": address, "category": "newsletter"}).status == 201
    assert_refused(service.post("/v1/emails", NEWS | {"to": address}), 403, "recipient_suppressed")


def test_batch_refuses_the_unsubscribed_member(service: Service, address: str) -> None:
    service.post("/v1/unsubscribes", {"address": address, "category": "newsletter"})
    batch = {"messages": [NEWS, NEWS | {"to": address}], "mode": "permissive"}
    first, second = service.post("/v1/emails/batch", batch).json["data"]
    assert "id" in first
    assert second["error"]["code"] == "recipient_unsubscribed"


def test_scheduled_email_fails_if_the_recipient_unsubscribes(service: Service, address: str) -> None:
    used = service.get("/v1/me").json["email_quota"]["used"]
    scheduled = service.post("/v1/emails", NEWS | {"to": address, "scheduled_at": time_from_now(seconds=2)}).json
    click(service, link_in(service, to=address))
    message = settled(service, f"/v1/emails/{scheduled['id']}")
    assert message["status"] == "failed"
    (recipient,) = message["recipients"]
    assert recipient["explanation"]["cause"] == "unsubscribed"
    assert service.get("/v1/me").json["email_quota"]["used"] == used


def test_unsubscribe_is_added_read_listed_and_deleted(service: Service, address: str) -> None:
    added = service.post("/v1/unsubscribes", {"address": address.upper(), "category": "newsletter"})
    assert (added.status, tuple(added.json)) == (201, FIELDS)
    assert added.json | {"created_at": ""} == {
        "object": "unsubscribe",
        "id": f"newsletter:{address}",
        "address": address,
        "category": "newsletter",
        "reason": "manual",
        "created_at": "",
    }
    assert service.post("/v1/unsubscribes", {"address": address, "category": "newsletter"}).json == added.json
    other = service.post("/v1/unsubscribes", {"address": address, "category": "offers"}).json
    assert service.get(f"/v1/unsubscribes/{address}?category=newsletter").json == added.json
    assert service.get(f"/v1/unsubscribes/{address}").json["data"] == [added.json, other]
    first = service.get("/v1/unsubscribes?limit=1").json
    assert first["data"] == [other]
    assert service.get(f"/v1/unsubscribes?limit=1&after={first['data'][0]['id']}").json["data"] == [added.json]
    deleted = service.ask("DELETE", f"/v1/unsubscribes/{address}?category=offers")
    assert (deleted.status, deleted.json) == (
        200,
        {"object": "unsubscribe", "address": address, "category": "offers", "deleted": True},
    )
    assert service.get(f"/v1/unsubscribes?limit=1&after={other['id']}").json["data"] == [added.json]
    assert service.ask("DELETE", f"/v1/unsubscribes/{address}").json["category"] is None
    assert_refused(service.ask("DELETE", f"/v1/unsubscribes/{address}"), 404, "unsubscribe_not_found", "address")
    assert service.post("/v1/emails", NEWS | {"to": address}).status == 202
    assert until(lambda: len(events(service, "recipient.resubscribed", address)) == 2)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"address": "nobody", "category": "newsletter"}, "invalid_email", "address"),
        ({"address": "a@example.com", "category": "unknown"}, "invalid_request", "category"),
        ({"address": "a@example.com"}, "invalid_request", "category"),
    ],
)
def test_invalid_unsubscribe_is_refused(service: Service, body: Body, code: str, param: str) -> None:
    assert_refused(service.post("/v1/unsubscribes", body), 400, code, param)


def test_unsubscribes_need_manage(service: Service) -> None:
    assert_refused(service.get("/v1/unsubscribes", key="ACME_SEND"), 403, "insufficient_scope")
    assert_refused(service.get("/v1/unsubscribes?after=x:y"), 400, "invalid_request", "after")


@pytest.mark.parametrize(
    ("fields", "code", "part"),
    [
        ({"text": "{{unsubscribe_url}}"}, "unknown_variable", "text"),
        ({"text": "x", "layout": "lay_unsubscribe"}, "unknown_variable", "layout"),
        ({"text": "{{unsubscribe_url|date}}", "category": "offers"}, "unknown_variable", "text"),
        ({"text": "x", "category": "unknown"}, "unknown_category", "category"),
    ],
)
def test_template_cannot_use_the_url_without_a_category_or_with_a_format(
    service: Service, fields: Body, code: str, part: str
) -> None:
    template = {"channel": "email", "name": f"Of {part} {code}", "subject": "x"} | fields
    refused = service.post("/v1/templates", template)
    assert_refused(refused, 400, "invalid_template")
    errors = [item for item in refused.json["error"]["details"]["problems"] if item["level"] == "error"]
    assert [(item["code"], item["part"]) for item in errors] == [(code, part)]


def test_render_bounds_include_the_url(service: Service, address: str) -> None:
    rendered = service.post("/v1/templates/tpl_newsletter/render", {})
    assert rendered.status == 200, rendered.raw
    body = {"to": address, "from": "hello@acme.test", "template_id": "tpl_newsletter"}
    sent = service.post("/v1/emails?dry_run=true", body).json
    size = sum(len(sent[part].encode()) for part in ("subject", "html", "text"))
    assert size < rendered.json["bounds"]["octets_max"] < size + 2000


def test_template_with_a_category_can_use_the_url(service: Service) -> None:
    fields = {"channel": "email", "name": "Offers", "subject": "x", "text": "{{unsubscribe_url}}", "category": "offers"}
    created = service.post("/v1/templates", fields)
    assert created.status == 201, created.raw
    assert created.json["draft"]["category"] == "offers"
