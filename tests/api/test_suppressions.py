"""/v1/suppressions: delete (spec 4.1.2), read, list and add (contract 12)."""

from urllib.parse import quote

import pytest

from tests.api.sends import EMAIL, assert_refused
from tests.service import Answer, Service

FIELDS = ("email", "reason", "source_message_id", "detail", "created_at")


def add(service: Service, email: str, **more: str) -> Answer:
    return service.post("/v1/suppressions", {"email": email, **more})


def path(email: str) -> str:
    return f"/v1/suppressions/{quote(email, safe='')}"


def test_suppression_is_added_read_and_deleted(shared_service: Service) -> None:
    added = add(shared_service, "One@Example.com", reason="complaint")
    assert (added.status, tuple(added.json)) == (201, FIELDS)
    assert (added.json["reason"], added.json["source_message_id"], added.json["detail"]) == ("complaint", None, None)
    assert shared_service.get(path("one@example.com")).json == added.json
    refused = shared_service.post("/v1/emails", EMAIL | {"to": "oNe@example.com"})
    assert_refused(refused, 403, "recipient_suppressed")
    deleted = shared_service.ask("DELETE", path("ONE@example.com"))
    assert (deleted.status, deleted.json) == (
        200,
        {"object": "suppression", "email": "ONE@example.com", "deleted": True},
    )
    assert_refused(shared_service.ask("DELETE", path("one@example.com")), 404, "suppression_not_found", "email")
    assert_refused(shared_service.get(path("one@example.com")), 404, "suppression_not_found", "email")
    assert shared_service.post("/v1/emails", EMAIL | {"to": "one@example.com"}).status == 202


@pytest.mark.parametrize(("given", "reason"), [({}, "manual"), ({"reason": "bounce"}, "bounce")])
def test_suppression_reason_defaults_to_manual(shared_service: Service, given: dict[str, str], reason: str) -> None:
    assert add(shared_service, f"{reason}-reason@example.com", **given).json["reason"] == reason


def test_adding_twice_keeps_one_entry(shared_service: Service) -> None:
    first, second = add(shared_service, "twice@example.com"), add(shared_service, "TWICE@example.com")
    assert (first.status, second.status) == (201, 201)
    suppressions = shared_service.get("/v1/suppressions?limit=100").json["data"]
    assert len([entry for entry in suppressions if entry["email"].lower() == "twice@example.com"]) == 1


def test_addresses_that_need_encoding_in_a_path(shared_service: Service) -> None:
    for email in ("a/b@example.com", "a%b@example.com", "a+b?c#d@example.com", "ünï@exämple.com"):
        assert add(shared_service, email).status == 201
        assert shared_service.ask("DELETE", path(email)).status == 200


def test_the_list_is_paged_newest_first(shared_service: Service) -> None:
    emails = [f"page{i}@example.com" for i in range(5)]
    for email in emails:
        add(shared_service, email)
    first = shared_service.get("/v1/suppressions?limit=2").json
    assert (first["object"], first["has_more"]) == ("list", True)
    second = shared_service.get(f"/v1/suppressions?limit=3&after={first['data'][-1]['email']}").json
    assert [entry["email"] for entry in first["data"] + second["data"]] == emails[::-1]


def test_paging_continues_after_deleted_entries(service: Service) -> None:
    """A page whose last entry was deleted has a next page."""
    emails = {f"walk+{i}@example.com" for i in range(7)}
    for email in emails:
        add(service, email)
    seen_emails, query, has_more = list[str](), "limit=3", True
    while has_more:
        page = service.get(f"/v1/suppressions?{query}").json
        for entry in page["data"]:
            seen_emails.append(entry["email"])
            service.ask("DELETE", path(entry["email"]))
        query, has_more = f"limit=3&after={seen_emails[-1]}", page["has_more"]
    assert emails <= set(seen_emails)
    assert len(seen_emails) == len(set(seen_emails))


def test_an_invalid_after_is_refused(shared_service: Service) -> None:
    for after in ("never-there@example.com", "nobody", ""):
        refused = shared_service.get(f"/v1/suppressions?after={after}")
        assert_refused(refused, 400, "invalid_request", "after")


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"email": "nobody"}, "invalid_email", "email"),
        ({"email": "Ada <ada@example.com>"}, "invalid_email", "email"),
        ({"email": "x@example.com", "reason": "whim"}, "invalid_request", "reason"),
        ({"email": ["x@example.com"]}, "invalid_request", "email"),
        ({}, "invalid_request", "email"),
        ({"email": "Suppressed+x@simulator.test"}, "invalid_request", "email"),
        ({"email": "x@example.com", "note": "x"}, "invalid_request", "note"),
    ],
)
def test_invalid_addresses_are_refused(shared_service: Service, body: dict[str, object], code: str, param: str) -> None:
    assert_refused(shared_service.post("/v1/suppressions", body), 400, code, param)


@pytest.mark.parametrize("email", ["never@example.com", "nobody", "%FF"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_unknown_addresses_return_404(shared_service: Service, method: str, email: str) -> None:
    code = "not_found" if email == "%FF" else "suppression_not_found"
    assert_refused(shared_service.ask(method, f"/v1/suppressions/{email}"), 404, code)


@pytest.mark.parametrize(
    ("method", "path", "key", "status"),
    [
        ("GET", "/v1/suppressions", "ACME_SEND", 403),
        ("GET", "/v1/suppressions/gone@example.com", "ACME_SEND", 403),
        ("POST", "/v1/suppressions", "ACME_SEND", 403),
        ("DELETE", "/v1/suppressions/never@example.com", "ACME_SEND", 404),
        ("DELETE", "/v1/suppressions/never@example.com", "ACME_MANAGE", 404),
        ("GET", "/v1/suppressions", "ACME_MANAGE", 200),
    ],
)
def test_suppressions_need_the_manage_scope(
    shared_service: Service, method: str, path: str, key: str, status: int
) -> None:
    body = {"email": "x@example.com"} if method == "POST" else None
    assert shared_service.ask(method, path, body, key=key).status == status


def test_a_team_sees_and_deletes_only_its_own(shared_service: Service) -> None:
    assert_refused(shared_service.ask("DELETE", path("gone@example.com"), key="SANDBOX"), 404, "suppression_not_found")
    assert shared_service.get(path("gone@example.com")).status == 200
