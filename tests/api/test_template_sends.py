"""Sends with lists, formats, layouts and languages, and what is recorded of them (contract 18)."""

from pathlib import Path
from typing import Any

import pytest

from heliograph.domain.setup.keys import make_token
from tests.api.sends import Body, assert_refused, send
from tests.service import Service, until

TOKEN = make_token(bytes(range(100, 164)))
BRANDED, PINNED = make_token(bytes(range(101, 165))), make_token(bytes(range(102, 166)))
SETUP = f"""
[[teams]]
id = "team_words"
mode = "sandbox"
features = ["verify"]
rate_limit = 0
verify = {{ inbox = true }}

  [[teams.layouts]]
  id = "lay_letter"
  html = "<body>{{{{content}}}}<i>{{{{brand.name}}}}</i></body>"
  text = "{{{{content}}}} -- {{{{brand.name}}}}"

  [[teams.templates]]
  id = "tpl_receipt"
  channel = "email"
  subject = "{{{{#if customer.x}}}}Hi {{{{customer.x}}}}{{{{else}}}}Receipt{{{{/if}}}}"
  html = "<b>{{{{#each customer.items}}}}{{{{item.title}}}}={{{{item.price|money:EUR}}}};{{{{/each}}}}</b>"
  text = "{{{{#each customer.items}}}}{{{{item.title}}}}={{{{item.price|money:EUR}}}};{{{{else}}}}none{{{{/each}}}}"
  variables = ["x", {{ name = "items", list = ["title", "price"], max = 2, max_length = 9 }}]
  optional = ["x"]
  layout = "lay_letter"
    [teams.templates.locales.de]
    subject = "{{{{#if customer.x}}}}Hallo {{{{customer.x}}}}{{{{else}}}}Beleg{{{{/if}}}}"
    html = "<u>{{{{#each customer.items}}}}{{{{item.title}}}}={{{{item.price|money:EUR}}}};{{{{/each}}}}</u>"
    text = "{{{{#each customer.items}}}}{{{{item.title}}}}: {{{{item.price|money:EUR}}}};{{{{/each}}}}"

  [[teams.templates]]
  id = "tpl_words_sms"
  channel = "sms"
  body = "{{{{customer.when|date:long}}}}"
  variables = ["when"]
  price = "0.0100"
    [teams.templates.locales.de-AT]
    body = "Am {{{{customer.when|date:long}}}}"

  [[teams.templates]]
  id = "tpl_words_wa"
  channel = "whatsapp"
  name = "parcel"
  category = "UTILITY"
  language = "en"
  body = "{{{{customer.total|money:EUR}}}}"
  variables = ["total"]
    [teams.templates.locales.de]
    body = "Summe {{{{customer.total|money:EUR}}}}"
    language = "de"
    upstream_name = "paket"

  [[teams.keys]]
  name = "server"
  token = "{TOKEN}"
  scopes = ["send", "manage"]

[[teams]]
id = "team_branded"
mode = "sandbox"
rate_limit = 0

  [[teams.domains]]
  id = "dom_branded"
  name = "branded.test"
  brand = "Branded"
  verified = true
  approved = true

  [[teams.templates]]
  id = "tpl_branded_email"
  channel = "email"
  subject = "{{{{brand.name}}}} of {{{{brand.domain}}}}"
  text = "x"

  [[teams.templates]]
  id = "tpl_branded_sms"
  channel = "sms"
  body = "{{{{brand.name}}}} of {{{{brand.domain}}}}"

  [[teams.templates]]
  id = "tpl_branded_whatsapp"
  channel = "whatsapp"
  category = "UTILITY"
  language = "en"
  body = "{{{{brand.name}}}} of {{{{brand.domain}}}}"

  [[teams.keys]]
  name = "server"
  token = "{BRANDED}"

  [[teams.keys]]
  name = "pinned elsewhere"
  token = "{PINNED}"
  domain = "other.test"
"""

LINES: list[Body] = [{"title": "Tea", "price": 2}, {"title": "Milk", "price": "0.5"}]
RECEIPT: Body = {"to": "delivered@simulator.test", "template_id": "tpl_receipt", "variables": {"items": LINES}}
SMS: Body = {"to": "+15005550006", "template_id": "tpl_words_sms", "variables": {"when": "2026-11-17"}}
WHATSAPP: Body = {"to": "+15005550006", "template_id": "tpl_words_wa", "variables": {"total": "12.5"}}
VERIFY: Body = {"to": "+15005550006"}


@pytest.fixture(scope="module")
def template_service(shared_service: Service, tmp_path_factory: pytest.TempPathFactory) -> Service:
    file = Path(tmp_path_factory.mktemp("words") / "words.toml")
    file.write_text(SETUP)
    shared_service.apply(file)
    until(lambda: shared_service.get("/v1/me", key=TOKEN).status == 200)
    return shared_service


def looked_at(service: Service, path: str, body: Body) -> Any:
    answer = service.post(f"{path}?dry_run=true", body, key=TOKEN)
    assert answer.status == 200, answer.raw
    return answer.json


@pytest.mark.parametrize(
    ("locale", "used", "subject", "html"),
    [
        (None, "en", "Receipt", "<body><b>Tea=€2.00;Milk=€0.50;</b><i>Heliograph</i></body>"),
        ("fr", "en", "Receipt", "<body><b>Tea=€2.00;Milk=€0.50;</b><i>Heliograph</i></body>"),
        ("de-DE-u-co-phonebk", "de", "Beleg", "<body><u>Tea=2,00\xa0€;Milk=0,50\xa0€;</u><i>Heliograph</i></body>"),
    ],
)
def test_email_is_rendered_in_the_best_matching_language(
    template_service: Service, locale: str | None, used: str, subject: str, html: str
) -> None:
    body = RECEIPT if locale is None else RECEIPT | {"locale": locale}
    sent = looked_at(template_service, "/v1/emails", body)
    assert (sent["subject"], sent["html"]) == (subject, html)
    assert (sent["template_version"], sent["layout_version"], sent["locale"]) == (1, 1, used)
    rendered = {name: body[name] for name in ("variables", "locale") if name in body}
    preview = template_service.post("/v1/templates/tpl_receipt/render", rendered, key=TOKEN).json
    assert (preview["subject"], preview["html"]) == (subject, html)


@pytest.mark.parametrize(("key", "brand"), [(BRANDED, "Branded of branded.test"), (PINNED, "Heliograph of ")])
@pytest.mark.parametrize(
    ("path", "to", "template", "part"),
    [
        ("/v1/emails", "delivered@simulator.test", "tpl_branded_email", "subject"),
        ("/v1/sms", "+15005550006", "tpl_branded_sms", "body"),
        ("/v1/whatsapp", "+15005550006", "tpl_branded_whatsapp", "body"),
    ],
)
def test_sandbox_brand_variables_come_from_the_teams_domain(
    template_service: Service, path: str, to: str, template: str, part: str, key: str, brand: str
) -> None:
    body = {"to": to, "template_id": template}
    preview = template_service.post(f"{path}?dry_run=true", body, key=key)
    assert preview.status == 200, preview.raw
    assert preview.json[part].startswith(brand)
    if key == BRANDED:
        assert template_service.post(f"/v1/templates/{template}/render", {}, key=key).json[part] == brand


def test_the_template_version_used_is_recorded(template_service: Service) -> None:
    answer = template_service.post("/v1/emails", RECEIPT | {"locale": "de"}, key=TOKEN)
    assert not {"template_version", "layout_version", "locale"} & answer.json.keys()
    recorded = {"template_version": 1, "layout_version": 1, "locale": "de"}
    read = template_service.get(f"/v1/emails/{answer.json['id']}", key=TOKEN).json
    assert {name: read[name] for name in recorded} == recorded

    def published_event() -> Any:
        events = template_service.get("/v1/events?limit=100", key=TOKEN).json["data"]
        return next((event["data"] for event in events if event["data"].get("id") == answer.json["id"]), None)

    data = until(published_event)
    assert {name: data[name] for name in recorded} == recorded


def test_a_direct_email_records_no_template(template_service: Service) -> None:
    direct = {"to": "delivered@simulator.test", "subject": "S", "text": "T"}
    sent = looked_at(template_service, "/v1/emails", direct)
    assert (sent["template_version"], sent["layout_version"], sent["locale"]) == (None, None, None)
    read = send(template_service, "/v1/emails", direct, TOKEN)
    assert (read["template_version"], read["layout_version"], read["locale"]) == (None, None, None)


@pytest.mark.parametrize(
    ("path", "body", "text", "used"),
    [
        ("/v1/sms", SMS, "November 17, 2026", "en"),
        ("/v1/sms", SMS | {"locale": "de-AT"}, "Am 17. November 2026", "de-AT"),
        ("/v1/sms", SMS | {"locale": "de"}, "November 17, 2026", "en"),
        ("/v1/whatsapp", WHATSAPP, "€12.50", "en"),
        ("/v1/whatsapp", WHATSAPP | {"locale": "de-CH"}, "Summe 12,50 €", "de"),
    ],
)
def test_a_phone_message_in_a_language(template_service: Service, path: str, body: Body, text: str, used: str) -> None:
    sent = looked_at(template_service, path, body)
    assert (sent["body"], sent["locale"], sent["template_version"]) == (text, used, 1)
    read = send(template_service, path, body, TOKEN)
    assert (read["locale"], read["template_version"]) == (used, 1)


def test_whatsapp_is_sent_in_the_templates_language(template_service: Service) -> None:
    sent = looked_at(template_service, "/v1/whatsapp", WHATSAPP | {"locale": "de"})
    assert (sent["template"], sent["language"], sent["parameters"]) == ("paket", "de", ["12,50 €"])
    sent = looked_at(template_service, "/v1/whatsapp", WHATSAPP)
    assert (sent["template"], sent["language"], sent["parameters"]) == ("parcel", "en", ["€12.50"])


def test_a_code_in_a_language(template_service: Service) -> None:
    phone = "+15005550007"
    assert looked_at(template_service, "/v1/verify", VERIFY | {"locale": "de-AT"})["locale"] == "de"
    assert looked_at(template_service, "/v1/verify", VERIFY | {"locale": "xx"})["locale"] == "en"
    started = template_service.post("/v1/verify", {"to": phone, "locale": "de-AT"}, key=TOKEN).json
    assert "locale" not in started
    assert template_service.get(f"/v1/verify/{started['id']}", key=TOKEN).json["locale"] == "de"


def test_a_batch_has_languages(template_service: Service) -> None:
    sends = [RECEIPT, RECEIPT | {"locale": "de"}, RECEIPT | {"locale": "?"}]
    answer = template_service.post("/v1/emails/batch", {"mode": "permissive", "messages": sends}, key=TOKEN)
    assert answer.status == 202, answer.raw
    first, second, third = answer.json["data"]
    assert [template_service.get(f"/v1/emails/{item['id']}", key=TOKEN).json["locale"] for item in (first, second)] == [
        "en",
        "de",
    ]
    assert (third["error"]["code"], third["error"]["param"]) == ("invalid_request", "messages[2].locale")


@pytest.mark.parametrize("locale", ["de_AT", "", "?", "x" * 20, 7])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/emails", RECEIPT),
        ("/v1/sms", SMS),
        ("/v1/whatsapp", WHATSAPP),
        ("/v1/verify", VERIFY),
        ("/v1/templates/tpl_receipt/render", {}),
    ],
)
def test_an_invalid_locale_is_refused(template_service: Service, path: str, body: Body, locale: Any) -> None:
    assert_refused(template_service.post(path, body | {"locale": locale}, key=TOKEN), 400, "invalid_request", "locale")


def test_a_language_needs_a_template(template_service: Service) -> None:
    direct = {"to": "delivered@simulator.test", "subject": "S", "text": "T", "locale": "de"}
    assert_refused(template_service.post("/v1/emails", direct, key=TOKEN), 400, "invalid_request", "locale")


@pytest.mark.parametrize(
    ("variables", "status", "code", "names"),
    [
        ({"items": [{"title": "a"}]}, 422, "missing_variable", ["items[0].price"]),
        ({"items": [LINES[0], LINES[0] | {"z": 1}] * 2, "y": 1}, 422, "unknown_variable", None),
        ({"items": [LINES[0], LINES[0] | {"z": 1}]}, 422, "unknown_variable", ["items[1].z"]),
        ({"items": [LINES[0] | {"price": "x"}] * 3}, 422, "list_too_long", ["items"]),
        ({"items": [LINES[0] | {"title": "x" * 10}]}, 422, "invalid_variable", ["items[0].title"]),
        ({"items": [LINES[0] | {"price": "x"}]}, 422, "invalid_variable", ["items[0].price"]),
        ({"x": "y" * 70_000, "items": [LINES[0] | {"price": "x"}]}, 422, "invalid_variable", ["items[0].price"]),
        ({"x": "y" * 70_000, "items": LINES}, 400, "body_too_long", None),  # in the subject
        ({"items": "x"}, 400, "invalid_request", None),
        ({"items": ["x"]}, 400, "invalid_request", None),
        ({"items": [LINES[0] | {"title": {"en": "x"}}]}, 400, "invalid_request", None),
        ({"items": [], "x": [LINES[0]]}, 400, "invalid_request", None),
    ],
)
def test_refusals_in_their_order(
    template_service: Service, variables: Body, status: int, code: str, names: list[str] | None
) -> None:
    answer = template_service.post("/v1/emails", RECEIPT | {"variables": variables}, key=TOKEN)
    assert_refused(answer, status, code)
    if names:
        assert answer.json["error"]["details"]["variables"] == names


@pytest.mark.parametrize(
    ("variables", "status", "missing", "unknown"),
    [
        ({"items": [{"title": "a", "z": 1}]}, 200, ["items[0].price"], ["items[0].z"]),
        ({"items": LINES * 2}, 422, None, None),
        ({"items": [LINES[0] | {"price": "x"}]}, 422, None, None),
        ({"items": "x"}, 400, None, None),
    ],
)
def test_render_accepts_the_values_of_a_send(
    template_service: Service, variables: Body, status: int, missing: Any, unknown: Any
) -> None:
    answer = template_service.post("/v1/templates/tpl_receipt/render", {"variables": variables}, key=TOKEN)
    assert answer.status == status, answer.raw
    if status == 200:
        assert (answer.json["missing"], answer.json["unknown"]) == (missing, unknown)


MORE = [LINES[0] | {"sku": "T-1"}, LINES[1]]
SENDER = "hello@sandbox.heliograph.test"


def test_postmark_requests_accept_lists(template_service: Service) -> None:
    mail = {"From": SENDER, "To": RECEIPT["to"], "TemplateAlias": "receipt", "TemplateModel": {"items": MORE, "z": [1]}}
    headers = {"X-Postmark-Server-Token": TOKEN}
    answer = template_service.post("/compat/postmark/email/withTemplate", mail, key=None, headers=headers)
    assert answer.status == 200, answer.raw
    assert inbox(template_service, answer.json["MessageID"])["text"] == "Tea=€2.00;Milk=€0.50; -- Heliograph"


def test_resend_requests_accept_lists(template_service: Service) -> None:
    items = [{name.upper(): value for name, value in item.items()} for item in MORE]
    mail = {"to": RECEIPT["to"], "template": {"id": "tpl_receipt", "variables": {"ITEMS": items}}}
    answer = template_service.post("/compat/resend/emails", mail, key=TOKEN)
    assert answer.status == 200, answer.raw
    assert inbox(template_service, answer.json["id"])["text"] == "Tea=€2.00;Milk=€0.50; -- Heliograph"


def inbox(service: Service, id_: str) -> Any:
    def arrived() -> Any:
        answer = service.get(f"/v1/inbox/{id_}", key=TOKEN)
        return answer.json if answer.status == 200 else None

    return until(arrived)
