"""Layouts by the API: drafts beside the published version, submission, approval by an operator, archiving, versions."""

from collections import Counter
from typing import Any

import pytest

from heliograph.api.drafts import DraftEndpoints
from heliograph.api.routes import V1
from tests.api.sends import assert_refused
from tests.service import Service, until, walked

TEXT = {"name": "Letter", "html": "<h1>{{brand.name}}</h1>{{content}}", "text": "{{content}}"}


def test_layouts_and_templates_share_their_endpoints() -> None:
    """The endpoints must be methods of `Drafts`, not copies."""
    routes = [route for route in V1 if route.path.startswith(("/v1/templates", "/v1/layouts"))]
    by_drafts = [route for route in routes if isinstance(getattr(route.call, "__self__", None), DraftEndpoints)]
    assert [route.name for route in routes if route not in by_drafts] == ["POST /v1/templates/{id}/render"]
    paths = Counter((route.method, route.path.replace("layouts", "templates")) for route in by_drafts)
    assert set(paths.values()) == {2}


def create_layout(service: Service, **changed: Any) -> Any:
    answer = service.post("/v1/layouts", TEXT | changed)
    assert answer.status == 201, answer.raw
    return answer.json


def test_a_layout_is_drafted_approved_and_archived(shared_service: Service) -> None:
    layout = create_layout(shared_service)
    path = f"/v1/layouts/{layout['id']}"
    assert (layout["status"], layout["version"], layout["submitted_at"], layout["problems"]) == ("draft", 1, None, [])
    mail = {"channel": "email", "subject": "S", "text": "x", "layout": layout["id"]}
    assert_refused(shared_service.post("/v1/templates", mail), 400, "invalid_template")

    submitted = shared_service.post(f"{path}/submit", None).json
    assert submitted["submitted_at"] and shared_service.post(f"{path}/submit", None).json == submitted
    shared_service.run("approval", "approve", layout["id"])
    until(lambda: shared_service.get(path).json["status"] == "approved")
    assert shared_service.post("/v1/templates", mail).json["layout"] == layout["id"]

    changed = shared_service.ask("PATCH", path, {"text": "-- {{content}}"}).json
    assert (changed["text"], changed["draft"]["text"]) == ("{{content}}", "-- {{content}}")
    shared_service.post(f"{path}/submit", None)
    shared_service.run("approval", "approve", layout["id"])
    until(lambda: shared_service.get(path).json["version"] == 2)
    versions = shared_service.get(f"{path}/versions").json["data"]
    assert [(line["version"], line["text"]) for line in versions] == [(2, "-- {{content}}"), (1, "{{content}}")]
    assert layout["id"] in [line["id"] for line in walked(shared_service, "/v1/layouts")]

    assert shared_service.post(f"{path}/archive", None).json["status"] == "archived"
    assert_refused(shared_service.post("/v1/templates", mail), 400, "invalid_template")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"text": "none"}, "missing_content"),
        ({"html": "{{content}}{{content}}"}, "missing_content"),
        ({"text": "{{content}}{{customer.name}}"}, "unknown_variable"),
        ({"text": "{{content}}{{brand.logo}}"}, "unknown_variable"),
        ({"html": None, "text": None}, "missing_part"),
    ],
)
def test_errors_refuse_a_save(shared_service: Service, changed: Any, code: str) -> None:
    answer = shared_service.post("/v1/layouts", TEXT | changed)
    assert_refused(answer, 400, "invalid_template")
    assert code in [problem["code"] for problem in answer.json["error"]["details"]["problems"]]


def test_a_full_storage_quota_refuses_on_every_interface(shared_service: Service) -> None:
    text = "x " * 260_000
    mail = {"channel": "email", "name": "Large", "subject": "S", "html": f"<p>{text}</p>"}
    first = shared_service.post("/v1/templates", mail, key="OTHER").json["id"]
    copies = [shared_service.post(f"/compat/resend/templates/{first}/duplicate", None, key="OTHER") for _ in range(16)]
    try:
        assert copies[0].status == 200
        assert copies[-1].status in (400, 422)
        assert "Discard unused drafts" in copies[-1].json["message"]
        for path, body in (("templates", mail), ("layouts", TEXT | {"text": "{{content}}" + text})):
            answer = shared_service.post(f"/v1/{path}", body, key="OTHER")
            assert_refused(answer, 400, "invalid_template")
            assert [problem["code"] for problem in answer.json["error"]["details"]["problems"]] == ["too_large"]
    finally:
        for id_ in (first, *(problem.json["id"] for problem in copies if problem.status == 200)):
            shared_service.post(f"/v1/templates/{id_}/archive", None, key="OTHER")


def test_warnings_do_not_refuse_a_save(shared_service: Service) -> None:
    assert [problem["code"] for problem in create_layout(shared_service, html="<div>{{content}}")["problems"]] == [
        "unclosed_tag"
    ]


def test_layouts_of_other_teams_return_404(shared_service: Service) -> None:
    layout, path = create_layout(shared_service), "/v1/layouts/lay_none"
    assert_refused(shared_service.get(path), 404, "layout_not_found")
    assert_refused(shared_service.get(f"/v1/layouts/{layout['id']}", key="OTHER"), 404, "layout_not_found")
    assert_refused(shared_service.post(f"{path}/submit", None), 404, "layout_not_found")
