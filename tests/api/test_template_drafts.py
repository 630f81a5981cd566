"""Templates by the API: drafts beside the published version, submission, approval, archiving, versions."""

from typing import Any

import pytest

from tests.api.sends import assert_refused
from tests.service import Service, until

RECEIPT = {
    "channel": "email",
    "name": "Receipt",
    "subject": "Your receipt",
    "html": "<p>{{#each customer.items}}{{item.title}} {{else}}nothing{{/each}}</p>",
    "text": "Hi {{customer.name}}",
    "variables": [
        {"name": "name", "max_length": 20},
        {"name": "items", "list": ["title"], "max": 3, "max_length": 10},
    ],
    "optional": ["items"],
    "locales": {
        "de": {
            "subject": "Ihre Quittung",
            "html": "<p>{{#each customer.items}}{{item.title}}{{/each}}</p>",
            "text": "Guten Tag, {{customer.name}}",
        }
    },
}


def create_template(service: Service, **changed: Any) -> Any:
    answer = service.post("/v1/templates", RECEIPT | changed)
    assert answer.status == 201, answer.raw
    return answer.json


def text_of(service: Service, id_: str, locale: str = "en") -> Any:
    answer = service.post(f"/v1/templates/{id_}/render", {"variables": {"name": "Ada"}, "locale": locale})
    return answer.json["text"] if answer.status == 200 else answer.json["error"]["code"]


def test_a_template_is_drafted_approved_and_archived(shared_service: Service) -> None:
    template = create_template(shared_service)
    path = f"/v1/templates/{template['id']}"
    assert (template["status"], template["version"], template["submitted_at"], template["problems"]) == (
        "draft",
        1,
        None,
        [],
    )
    assert template["variables"] == RECEIPT["variables"] and template["draft"]["subject"] == "Your receipt"
    assert text_of(shared_service, template["id"]) == "template_not_found"

    submitted = shared_service.post(f"{path}/submit", None).json
    assert submitted["submitted_at"] and submitted["status"] == "draft"
    assert shared_service.post(f"{path}/submit", None).json == submitted
    assert text_of(shared_service, template["id"]) == "template_not_found"
    shared_service.run("approval", "approve", template["id"])
    until(lambda: text_of(shared_service, template["id"]) == "Hi Ada")

    german = {"de": {"subject": "Quittung", "text": "Hallo {{customer.name}}"}}
    content = {"text": "Hello {{customer.name}}", "html": None, "locales": german}
    changed = shared_service.ask("PATCH", path, content).json
    assert (changed["status"], changed["text"], changed["draft"]["text"]) == (
        "approved",
        "Hi {{customer.name}}",
        "Hello {{customer.name}}",
    )
    assert changed["html"] and changed["draft"]["html"] is None and changed["submitted_at"] is None
    assert text_of(shared_service, template["id"]) == "Hi Ada"
    shared_service.post(f"{path}/submit", None)
    assert [text_of(shared_service, template["id"], tag) for tag in ("en", "de")] == ["Hi Ada", "Guten Tag, Ada"]
    shared_service.run("approval", "approve", template["id"])
    until(lambda: text_of(shared_service, template["id"]) == "Hello Ada")
    assert text_of(shared_service, template["id"], "de") == "Hallo Ada"  # all languages are published together

    now = shared_service.get(path).json
    assert (now["version"], now["draft"], now["submitted_at"]) == (2, None, None)
    versions = shared_service.get(f"{path}/versions").json["data"]
    assert [(line["version"], line["text"]) for line in versions] == [
        (2, "Hello {{customer.name}}"),
        (1, "Hi {{customer.name}}"),
    ]
    (first,) = shared_service.get(f"{path}/versions?after=2").json["data"]
    assert first["version"] == 1
    assert_refused(shared_service.get(f"{path}/versions?after=first"), 400, "invalid_request")

    assert shared_service.post(f"{path}/archive", None).json["status"] == "archived"
    assert text_of(shared_service, template["id"]) == "template_not_found"
    assert shared_service.get(path).json["status"] == "archived"


def test_bounds_are_those_of_the_approved_version(shared_service: Service) -> None:
    template = create_template(
        shared_service,
        channel="sms",
        body="Hi {{customer.name}}",
        variables=[{"name": "name", "max_length": 9}],
        optional=[],
        locales={},
        subject=None,
        html=None,
        text=None,
    )
    shared_service.post(f"/v1/templates/{template['id']}/submit", None)
    process = shared_service.run("approval", "approve", template["id"], "--price", "0.0450", "--free")
    assert not process.returncode, process.stderr
    path = f"/v1/templates/{template['id']}/render"
    until(lambda: shared_service.post(path, {}).status == 200)
    bounds = shared_service.post(path, {"variables": {"name": "Ada"}}).json["bounds"]
    assert bounds == {"octets_max": 3 + 36, "segments_max": 1, "price_max": "0.0450"}


@pytest.mark.parametrize(
    ("changed", "code", "part", "line"),
    [
        ({"text": "a\n{{#if customer.name}}"}, "unclosed_block", "text", 2),
        ({"html": "<p>\n\n{{customer.who}}</p>"}, "unknown_variable", "html", 3),
        ({"text": "{% if x %}{{customer.name}}"}, "foreign_syntax", "text", 1),
        ({"layout": "lay_none"}, "layout_not_found", "layout", None),
        ({"locales": {"de": {"subject": "S"}}}, "missing_part", "html", None),
        ({"subject": None}, "missing_part", "subject", None),
    ],
)
def test_errors_refuse_a_save(shared_service: Service, changed: Any, code: str, part: str, line: int | None) -> None:
    answer = shared_service.post("/v1/templates", RECEIPT | changed)
    assert_refused(answer, 400, "invalid_template")
    problem = next(entry for entry in answer.json["error"]["details"]["problems"] if entry["code"] == code)
    assert (problem["level"], problem["part"], problem["line"]) == ("error", part, line)


def test_warnings_do_not_refuse_a_save(shared_service: Service) -> None:
    template = create_template(
        shared_service,
        html='<p>\n<img src="https://a.test/a.png" width="1">',
        locales={},
        text=None,
        variables=[],
        optional=[],
    )
    assert {(problem["level"], problem["code"], problem["line"]) for problem in template["problems"]} == {
        ("warning", "no_text_part", None),
        ("warning", "unclosed_tag", 1),
        ("warning", "image_without_alt", 2),
    }


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"channel": "fax"}, "channel"),
        ({"colour": "red"}, "colour"),
        ({"locale": "no tag"}, "locale"),
        ({"variables": [{"name": "name", "max": "many"}]}, "variables"),
        ({"price": "1.00"}, "price"),
    ],
)
def test_invalid_templates_are_refused(shared_service: Service, changed: Any, param: str) -> None:
    answer = shared_service.post("/v1/templates", RECEIPT | changed)
    assert_refused(answer, 400, "invalid_request")
    assert answer.json["error"]["param"].startswith(param)


def test_templates_of_other_teams_return_404(shared_service: Service) -> None:
    path = "/v1/templates/tpl_globex"
    for answer in (
        shared_service.get(path),
        shared_service.ask("PATCH", path, {}),
        shared_service.post(f"{path}/submit", None),
        shared_service.post(f"{path}/archive", None),
        shared_service.get(f"{path}/versions"),
    ):
        assert_refused(answer, 404, "template_not_found", "id")


def test_the_list_is_paginated(shared_service: Service) -> None:
    ids = []
    after = ""
    for _ in range(200):
        page = shared_service.get(f"/v1/templates?limit=10{after}").json
        ids += [item["id"] for item in page["data"]]
        if not page["has_more"]:
            break
        after = f"&after={ids[-1]}"
    assert "tpl_sms" in ids and ids == sorted(ids) and len(set(ids)) == len(ids)


def test_a_template_may_have_2_mib(shared_service: Service) -> None:
    long = "x" * (512 * 1024)
    create_template(
        shared_service,
        html=long,
        text=long,
        variables=[],
        optional=[],
        locales={"de": {"subject": "S", "html": long, "text": "x"}},
    )
    assert_refused(shared_service.post("/v1/templates", RECEIPT | {"html": long * 5}), 413, "payload_too_large")
