"""/v1/keys: keys created, listed, rotated and revoked by a key with `manage`, which cannot grant more than it has."""

from itertools import count
from typing import Any

import pytest

from heliograph.domain.setup.keys import parse_token
from tests.api.sends import assert_refused
from tests.service import TOKENS, Service

SENDER = parse_token(TOKENS["ACME_SEND"])
_NUMBERS = count()


def make(service: Service, key: str = "ACME", **more: Any) -> Any:
    answer = service.post("/v1/keys", {"name": f"made {next(_NUMBERS)}", **more}, key=key)
    assert answer.status == 201, answer.raw
    return answer.json


def keys_by_id(service: Service, query: str = "?limit=100") -> dict[str, Any]:
    return {key["id"]: key for key in service.get(f"/v1/keys{query}").json["data"]}


def test_a_key_is_created_listed_and_used(shared_service: Service) -> None:
    created = make(shared_service, scopes=["send"], domain="ACME.test", expires_at="2100-01-01T00:00:00.000Z")
    token = created.pop("token")
    assert parse_token(token) == created["id"]
    assert created == {
        "id": created["id"],
        "name": created["name"],
        "scopes": ["send"],
        "domain": "acme.test",
        "state": "expires",
        "expires_at": "2100-01-01T00:00:00.000Z",
        "networks": [],
        "passthrough": None,
        "restrictions": None,
        "hook": False,
        "last_used_at": None,
    }
    assert keys_by_id(shared_service)[created["id"]] == created
    assert shared_service.get("/v1/me", key=token).json["scopes"] == ["send"]
    assert keys_by_id(shared_service)[created["id"]]["last_used_at"] is not None
    assert all("token" not in entry for entry in keys_by_id(shared_service).values())


def test_a_key_has_a_passthrough_template(shared_service: Service) -> None:
    created = make(shared_service, passthrough="tpl_hook_sms")
    assert (created["passthrough"], keys_by_id(shared_service)[created["id"]]["passthrough"]) == ("tpl_hook_sms",) * 2


def test_keys_are_paginated(shared_service: Service) -> None:
    make(shared_service)
    ids = [*keys_by_id(shared_service)]
    first = shared_service.get("/v1/keys?limit=1").json
    assert (first["has_more"], first["data"][0]["id"]) == (True, ids[0])
    assert [*keys_by_id(shared_service, f"?limit=100&after={ids[0]}")] == ids[1:]
    for after in ("", "zzz", f"{ids[0]}%0A"):
        assert_refused(shared_service.get(f"/v1/keys?after={after}"), 400, "invalid_request", "after")


def test_a_key_is_rotated_and_revoked(shared_service: Service) -> None:
    old = make(shared_service, name="server a", scopes=["send", "manage"])
    new = shared_service.post(f"/v1/keys/{old['id']}/rotate", None).json
    assert (new["name"], new["scopes"], new["state"]) == ("server a 2", ["send", "manage"], "works")
    assert keys_by_id(shared_service)[old["id"]]["state"] == "expires"
    for token in (old["token"], new["token"]):
        assert shared_service.get("/v1/me", key=token).status == 200
    revoked = shared_service.ask("DELETE", f"/v1/keys/{old['id']}")
    assert (revoked.status, revoked.json["id"], revoked.json["state"]) == (200, old["id"], "revoked")
    assert shared_service.ask("DELETE", f"/v1/keys/{old['id']}").status == 200
    assert shared_service.get("/v1/me", key=old["token"]).status == 401
    assert_refused(shared_service.post(f"/v1/keys/{old['id']}/rotate", None), 400, "invalid_request")


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"name": "server"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["send", "all"]}, "scopes"),
        ({"domain": "other.test"}, "domain"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"networks": ["192.0.2.1/24"]}, "networks"),
        ({"networks": ["192.0.2.0/24"] * 21}, "networks"),
        ({"passthrough": "tpl_none"}, "passthrough"),
        ({"owner": "me"}, "owner"),
    ],
)
def test_invalid_keys_are_refused(shared_service: Service, more: Any, param: str) -> None:
    assert_refused(shared_service.post("/v1/keys", {"name": "refused", **more}), 400, "invalid_request", param)


def test_a_key_cannot_create_a_more_powerful_key(shared_service: Service) -> None:
    for body in ({"scopes": ["send"]}, {"scopes": ["manage", "send"]}):
        fields = {"name": "more", **body}
        assert_refused(shared_service.post("/v1/keys", fields, key="ACME_MANAGE"), 403, "insufficient_scope")
    rotated = shared_service.post(f"/v1/keys/{SENDER}/rotate", None, key="ACME_MANAGE")
    assert_refused(rotated, 403, "insufficient_scope")
    pinned = make(shared_service, scopes=["manage"], domain="acme.test", expires_at="2100-01-01T00:00:00Z")["token"]
    allowed = {"scopes": ["manage"], "domain": "acme.test", "expires_at": "2099-01-01T00:00:00Z"}
    make(shared_service, key=pinned, **allowed)
    for wider in ({"domain": None}, {"expires_at": None}, {"expires_at": "2101-01-01T00:00:00Z"}):
        refused = shared_service.post("/v1/keys", {"name": "wider", **allowed, **wider}, key=pinned)
        assert_refused(refused, 403, "insufficient_scope")


def test_a_key_works_only_from_its_networks(shared_service: Service) -> None:
    local_key = make(shared_service, scopes=["manage"], networks=["127.0.0.0/8", "192.0.2.7"])
    remote_key = make(shared_service, networks=["192.0.2.0/24", "2001:db8::/32"])
    assert keys_by_id(shared_service)[local_key["id"]]["networks"] == ["127.0.0.0/8", "192.0.2.7"]
    assert shared_service.get("/v1/me", key=local_key["token"]).status == 200
    refused = shared_service.get("/v1/me", key=remote_key["token"])
    assert_refused(refused, 403, "insufficient_scope")
    assert "only from 192.0.2.0/24, 2001:db8::/32, not from 127.0.0.1" in refused.json["error"]["message"]
    make(shared_service, key=local_key["token"], scopes=["manage"], networks=["192.0.2.7"])
    for wider in ([], ["0.0.0.0/0"]):
        fields = {"name": "wider", "scopes": ["manage"], "networks": wider}
        assert_refused(shared_service.post("/v1/keys", fields, key=local_key["token"]), 403, "insufficient_scope")


def test_keys_of_other_teams_and_without_manage_are_refused(shared_service: Service) -> None:
    other = parse_token(TOKENS["SANDBOX"])
    assert other not in keys_by_id(shared_service)
    for method, path in (("DELETE", f"/v1/keys/{other}"), ("POST", f"/v1/keys/{other}/rotate")):
        assert_refused(shared_service.ask(method, path), 404, "not_found")
        assert_refused(shared_service.ask(method, path, key="ACME_SEND"), 403, "insufficient_scope")
    assert_refused(shared_service.get("/v1/keys", key="ACME_SEND"), 403, "insufficient_scope")
