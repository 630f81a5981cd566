"""Teams by the API: a platform key creates teams and manages their fields, keys, members, credit and usage."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from heliograph.api.teams import OptOutFields, TeamDetails, TeamFields, VerifyFields
from heliograph.domain.setup import setup_file
from heliograph.domain.setup.keys import parse_token
from tests.api.sends import EMAIL, SMS, assert_refused, settled
from tests.api.test_platform_keys import platform_token
from tests.service import Service, walked

# fields of a team in the setup file that the API manages by separate routes, and the id
OTHER_RECORDS = {
    *("id", "credit", "domains", "layouts", "templates", "keys", "webhooks", "suppressions", "recipients"),
    *("sender_ids", "inbound"),
}


class Platform(msgspec.Struct, frozen=True):
    """Requests of a platform key to the service."""

    service: Service
    token: str

    def get(self, path: str) -> Any:
        return self.service.get(path, key=self.token)

    def post(self, path: str, body: Any = None) -> Any:
        return self.service.post(path, {} if body is None else body, key=self.token)

    def patch(self, path: str, body: Any) -> Any:
        return self.service.ask("PATCH", path, body, key=self.token)

    def delete(self, path: str) -> Any:
        return self.service.ask("DELETE", path, key=self.token)

    def entries(self, team: str) -> list[tuple[str, str, str]]:
        """Return a team's audit entries, newest first."""
        data = self.get(f"/v1/audit?team={team}&limit=100").json["data"]
        return [(entry["action"], entry["by"], entry["subject"]) for entry in data]

    @property
    def actor(self) -> str:
        return f"key {parse_token(self.token)}"


@pytest.fixture
def platform(service: Service) -> Platform:
    return Platform(service, platform_token(service, "--name", "billing"))


@pytest.fixture(scope="module")
def shared_platform(shared_service: Service) -> Platform:
    return Platform(shared_service, platform_token(shared_service))


def test_fields_are_those_of_the_setup_file() -> None:
    def names(struct: Any) -> set[str]:
        return set(struct.__struct_fields__)

    assert names(TeamFields) == names(setup_file._Team) - OTHER_RECORDS
    assert names(VerifyFields) == names(setup_file._Verify)
    assert names(OptOutFields) == names(setup_file._OptOut)


def test_team_with_key_member_and_credit_sends_and_is_charged(platform: Platform) -> None:
    created = platform.post("/v1/teams", {"id": "team_new", "name": "New", "mode": "live", "verify": {"magic": True}})
    assert (created.status, created.json["credit"], created.json["verify"]["magic"]) == (201, "0.0000", True)
    assert created.json.keys() == set(TeamDetails.__struct_fields__)
    assert platform.get("/v1/teams/team_new").json == created.json
    assert created.json in walked_teams(platform)

    key = platform.post("/v1/teams/team_new/keys", {"name": "server", "scopes": ["send", "manage"]})
    assert (key.status, key.json["scopes"]) == (201, ["send", "manage"])
    me = platform.service.get("/v1/me", key=key.json["token"]).json
    assert (me["team"], me["credit"]) == ({"id": "team_new", "name": "New"}, "0.0000")

    booked = platform.post("/v1/teams/team_new/credit", {"amount": "2.50", "reference": "invoice 1"})
    assert (booked.status, booked.json["credit"], booked.json["amount"]) == (201, "2.5000", "2.5000")
    again = platform.post("/v1/teams/team_new/credit", {"amount": "9", "reference": "invoice 1"})
    assert (again.status, again.json) == (201, booked.json)
    expected = {"object": "credit", "currency": "USD", "credit": "2.5000", "held": "0.0000"}
    assert platform.get("/v1/teams/team_new/credit").json == expected

    member = platform.post("/v1/teams/team_new/members", {"email": "ada@example.com", "role": "owner"}).json
    page = platform.service.get(member.pop("url").partition("/dashboard")[1] + "/sign-in", key=None)
    assert page.status == 200
    listing = platform.get("/v1/teams/team_new/members").json["data"]
    assert listing == [member] and (member["invited"], member["role"]) == (True, "owner")
    assert platform.delete(f"/v1/teams/team_new/members/{member['id']}").json["deleted"]
    assert platform.get("/v1/teams/team_new/members").json["data"] == []

    listed = platform.get("/v1/teams/team_new/keys").json["data"]
    assert [item["id"] for item in listed] == [key.json["id"]]
    assert platform.delete(f"/v1/teams/team_new/keys/{key.json['id']}").json["state"] == "revoked"
    assert platform.service.get("/v1/me", key=key.json["token"]).status == 401

    changed = platform.patch("/v1/teams/team_new", {"verify": {"per_phone_day": 3}, "suspended": True, "name": None})
    assert changed.status == 200, changed.raw
    assert changed.json["verify"] == created.json["verify"] | {"per_phone_day": 3}
    assert (changed.json["suspended"], changed.json["name"]) == (True, "New")
    assert platform.entries("team_new") == [
        ("team.change", platform.actor, "team_new"),
        ("key.revoke", platform.actor, "server"),
        ("member.remove", platform.actor, "ada@example.com"),
        ("member.invite", platform.actor, "ada@example.com"),
        ("credit.book", platform.actor, "2.5000"),
        ("key.create", platform.actor, "server"),
        ("team.create", platform.actor, "team_new"),
    ]


def test_deleted_team_is_suspended_until_it_is_restored(platform: Platform) -> None:
    platform.post("/v1/teams", {"id": "team_gone"})
    token = platform.post("/v1/teams/team_gone/keys", {"name": "server"}).json["token"]
    deleted = platform.delete("/v1/teams/team_gone").json
    days = datetime.fromisoformat(deleted["deletes_at"]) - datetime.now(UTC)
    assert deleted["suspended"] and timedelta(days=29, hours=23) < days <= timedelta(days=30)
    assert platform.delete("/v1/teams/team_gone").json == platform.get("/v1/teams/team_gone").json == deleted
    assert_refused(platform.service.get("/v1/me", key=token), 403, "team_suspended")
    assert_refused(platform.patch("/v1/teams/team_gone", {"suspended": False}), 400, "invalid_request", "suspended")
    restored = platform.post("/v1/teams/team_gone/restore").json
    assert (restored["suspended"], restored["deletes_at"]) == (False, None)
    assert platform.post("/v1/teams/team_gone/restore").json == restored
    assert platform.service.get("/v1/me", key=token).status == 200
    actions = [action for action, *_ in platform.entries("team_gone")]
    assert actions == ["team.restore", "team.delete", "key.create", "team.create"]


def walked_teams(platform: Platform) -> list[Any]:
    """Return all teams, read page by page."""
    result: list[Any] = []
    while True:
        after = f"&after={result[-1]['id']}" if result else ""
        page = platform.get(f"/v1/teams?limit=3{after}").json
        result += page["data"]
        if not page["has_more"]:
            assert [team["id"] for team in result] == sorted(team["id"] for team in result)
            return result


def test_usage_counts_what_was_sent_and_charged(platform: Platform) -> None:
    service = platform.service
    sms = service.post("/v1/sms", SMS | {"to": "+447400123456"})
    email = service.post("/v1/emails", EMAIL | {"to": "a@example.com"})
    message = settled(service, f"/v1/sms/{sms.json['id']}")
    settled(service, f"/v1/emails/{email.json['id']}")
    usage = platform.get("/v1/teams/team_acme/usage").json
    assert (usage["channels"]["sms"]["sent"], usage["channels"]["email"]["sent"]) == (1, 1)
    assert usage["channels"]["whatsapp"]["sent"] == 0
    assert usage["email_quota"]["used"] == 1
    (charge,) = [charge for charge in usage["charges"] if charge["kind"] == "sms"]
    assert charge["count"] == 1 and float(charge["amount"]) > 0 and message["status"] == "delivered"
    assert usage["total"] == charge["amount"]
    past = platform.get("/v1/teams/team_acme/usage?month=2024-02").json
    assert (past["month"], past["charges"], past["email_quota"]["used"]) == ("2024-02", [], None)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "param"),
    [
        ("POST", "", {"id": "acme"}, 400, "invalid_request", "id"),
        ("POST", "", {"id": "team_acme"}, 400, "invalid_request", "id"),
        ("POST", "", {"credit": "-1"}, 400, "invalid_request", "credit"),
        ("POST", "", {"currency": "EURO"}, 400, "invalid_request", "currency"),
        ("POST", "", {"mode": "live", "catch": True}, 400, "invalid_request", "catch"),
        ("POST", "", {"keep_content_days": 30, "keep_messages_days": 3}, 400, "invalid_request", "keep_messages_days"),
        ("POST", "", {"passthrough": "tpl_none"}, 400, "invalid_request", "passthrough"),
        ("POST", "", {"pool": "none"}, 400, "invalid_request", "pool"),
        ("POST", "", {"categories": ["News"]}, 400, "invalid_request", "categories"),
        ("POST", "", {"opt_out": {"words": ["unstop"]}}, 400, "invalid_request", "opt_out"),
        ("PATCH", "/team_acme", {"opt_out": {"start_words": ["stop"]}}, 400, "invalid_request", "opt_out"),
        ("PATCH", "/team_acme", {"currency": "EUR"}, 400, "invalid_request", "currency"),
        ("POST", "", {"domains": []}, 400, "invalid_request", "domains"),
        ("PATCH", "/team_acme", {"mode": "test"}, 400, "invalid_request", "mode"),
        ("PATCH", "/team_acme", {"verify": {"per_phone_day": -1}}, 400, "invalid_request", "verify"),
        ("PATCH", "/team_acme", {"verify": {"unknown": 1}}, 400, "invalid_request", None),
        ("PATCH", "/team_acme", {"id": "team_other"}, 400, "invalid_request", "id"),
        ("PATCH", "/team_acme", {"credit": "1"}, 400, "invalid_request", "credit"),
        ("PATCH", "/team_acme", {"pool": "none"}, 400, "invalid_request", "pool"),
        ("PATCH", "/team_acme", {"test_clock": True}, 400, "invalid_request", "test_clock"),
        ("PATCH", "/team_none", {"name": "X"}, 404, "team_not_found", "id"),
        ("POST", "/team_acme/keys", {"name": "x", "scopes": ["operate"]}, 400, "invalid_request", "scopes"),
        ("POST", "/team_acme/keys", {"name": "x", "domain": "none.test"}, 400, "invalid_request", "domain"),
        ("POST", "/team_suspended/keys", {"name": "x"}, 403, "team_suspended", None),
        ("POST", "/team_none/keys", {"name": "x"}, 404, "team_not_found", "id"),
        ("DELETE", "/team_none", None, 404, "team_not_found", "id"),
        ("POST", "/team_none/restore", {}, 404, "team_not_found", "id"),
        ("DELETE", "/team_acme/keys/0000000000", None, 404, "not_found", None),
        ("POST", "/team_acme/members", {"email": "a", "role": "owner"}, 400, "invalid_request", "email"),
        ("POST", "/team_acme/members", {"email": "a@b.test", "role": "boss"}, 400, "invalid_request", "role"),
        ("POST", "/team_suspended/members", {"email": "a@b.test", "role": "owner"}, 403, "team_suspended", None),
        ("DELETE", "/team_acme/members/usr_none", None, 404, "not_found", "person_id"),
        ("POST", "/team_acme/credit", {"amount": "1"}, 400, "invalid_request", "reference"),
        ("POST", "/team_acme/credit", {"amount": "1", "reference": " "}, 400, "invalid_request", "reference"),
        ("POST", "/team_acme/credit", {"amount": "1", "reference": "a\nb"}, 400, "invalid_request", "reference"),
        ("POST", "/team_acme/credit", {"amount": "x", "reference": "a"}, 400, "invalid_request", "amount"),
        ("POST", "/team_acme/credit", {"amount": "0", "reference": "a"}, 400, "invalid_request", "amount"),
        ("POST", "/team_acme/credit", {"amount": "-999999", "reference": "a"}, 400, "invalid_request", "amount"),
        ("POST", "/team_acme/credit", {"amount": 1, "reference": "a"}, 400, "invalid_request", "amount"),
        ("GET", "/team_acme/usage?month=2026-13", None, 400, "invalid_request", "month"),
        ("GET", "/team_acme/usage?month=now", None, 400, "invalid_request", "month"),
        ("GET", "?after=acme", None, 400, "invalid_request", "after"),
        ("GET", "/team_none", None, 404, "team_not_found", "id"),
        ("GET", "/team_none/keys", None, 404, "team_not_found", "id"),
        ("GET", "/team_none/members", None, 404, "team_not_found", "id"),
        ("GET", "/team_none/credit", None, 404, "team_not_found", "id"),
        ("GET", "/team_none/usage", None, 404, "team_not_found", "id"),
    ],
)
def test_refused_request_changes_nothing(
    shared_platform: Platform, method: str, path: str, body: Any, status: int, code: str, param: str | None
) -> None:
    newest = shared_platform.get("/v1/audit?limit=1").json["data"]
    answer = shared_platform.service.ask(method, f"/v1/teams{path}", body, key=shared_platform.token)
    assert_refused(answer, status, code, param)
    assert shared_platform.get("/v1/audit?limit=1").json["data"] == newest


def test_keys_of_teams_cannot_use_the_routes_of_platform_keys(shared_service: Service) -> None:
    for key in ("ACME", "ACME_SEND", "ACME_MANAGE", "SANDBOX"):
        assert_refused(shared_service.get("/v1/teams", key=key), 403, "insufficient_scope")
        assert_refused(shared_service.post("/v1/teams", {"name": "X"}, key=key), 403, "insufficient_scope")


def test_key_created_by_a_platform_key_is_limited_by_the_quota_of_the_team(shared_platform: Platform) -> None:
    assert walked(shared_platform.service, "/v1/keys")
    created = shared_platform.post("/v1/teams/team_acme/keys", {"name": "by the platform", "domain": "acme.test"})
    assert (created.status, created.json["domain"]) == (201, "acme.test")
    assert created.json["id"] in {key["id"] for key in walked(shared_platform.service, "/v1/keys")}
