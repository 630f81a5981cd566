"""Reads (contract 12): single records, lists with filters, /v1/me; and isolation between teams (P17)."""

import functools
import re
from typing import Any
from urllib.parse import quote

import pytest

from heliograph.accept.scheduled import RescheduleRequest
from heliograph.api.routes import ROUTES
from heliograph.web.route import Route
from tests.api.sends import EMAIL, SENDS, SMS, Body, assert_refused, idle_me, send, settled
from tests.service import Service

RECIPIENT = ("address", "kind", "status", "updated_at", "detail", "explanation", "simulated", "provider", "held")
EVENT = (
    *("id", "type", "recipient", "status", "previous_status", "message_status", "sequence", "detail", "created_at"),
    "simulated",
)
MESSAGES = ("/v1/emails", "/v1/sms", "/v1/whatsapp")
PREFIX = {"/v1/emails": "eml_", "/v1/sms": "sms_", "/v1/whatsapp": "wam_", "/v1/verify": "vrf_"}


# -- one record --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MESSAGES)
def test_message_is_returned_with_recipients_and_events(shared_service: Service, path: str) -> None:
    answer = shared_service.post(path, SENDS[path])
    end = "read" if path == "/v1/whatsapp" else "delivered"
    message = settled(shared_service, f"{path}/{answer.json['id']}", status=end)
    added = (
        "tags",
        "metadata",
        "scheduled_at",
        "expires_at",
        "priority",
        *(("reply_to_addresses", "headers", "layout_version") if path == "/v1/emails" else ()),
        "template_version",
        "locale",
    )
    assert tuple(message)[: len(answer.json)] == tuple(answer.json)
    assert message.keys() == {*answer.json, *added, "simulated", "recipients", "events", "held"}
    assert {name: message[name] for name in answer.json} == answer.json | {"status": end}
    (recipient,) = message["recipients"]
    assert tuple(recipient) == RECIPIENT
    assert (recipient["address"], recipient["kind"], recipient["status"]) == (SENDS[path]["to"], "to", end)
    assert (recipient["provider"], recipient["held"]) == ("other" if path == "/v1/emails" else None, None)
    assert message["held"] is None
    assert all(tuple(event) == EVENT for event in message["events"])
    assert all(part["simulated"] is True for part in (message, recipient, *message["events"]))
    assert [event["sequence"] for event in message["events"]] == list(range(1, len(message["events"]) + 1))


def test_several_recipients_each_have_their_own_state(shared_service: Service) -> None:
    body = EMAIL | {
        "to": ["delivered@simulator.test", "bounced@simulator.test"],
        "cc": ["failed@simulator.test"],
        "bcc": ["complained@simulator.test"],
    }
    message = send(shared_service, "/v1/emails", body, status="complained")
    kinds = {r["address"].partition("@")[0]: (r["kind"], r["status"]) for r in message["recipients"]}
    assert kinds == {
        "delivered": ("to", "delivered"),
        "bounced": ("to", "bounced"),
        "failed": ("cc", "failed"),
        "complained": ("bcc", "complained"),
    }
    causes = {r["status"]: (r["explanation"] or {}).get("cause") for r in message["recipients"]}
    assert causes == {"delivered": None, "bounced": "unknown_user", "failed": "policy", "complained": "complained"}
    assert [e["sequence"] for e in message["events"]] == list(range(1, len(message["events"]) + 1))


def test_verification_is_returned_as_by_its_start(shared_service: Service) -> None:
    answer = shared_service.post("/v1/verify", {"to": "+15005550005"})
    assert shared_service.get(f"/v1/verify/{answer.json['id']}").json == answer.json


@pytest.mark.parametrize("path", PREFIX)
def test_unknown_ids_return_404(shared_service: Service, path: str) -> None:
    code = "verification_not_found" if path == "/v1/verify" else "message_not_found"
    for id_ in (f"{PREFIX[path]}01JCQ8Z6V3M2N7T0K4H9R5B1XA", "nothing", "x" * 300, "%F0%9F%98%80"):
        assert_refused(shared_service.get(f"{path}/{id_}"), 404, code, "id")


def test_an_id_of_another_channel_is_unknown(shared_service: Service) -> None:
    id_ = shared_service.post("/v1/sms", SMS).json["id"]
    for path in ("/v1/emails", "/v1/whatsapp"):
        assert_refused(shared_service.get(f"{path}/{id_}"), 404, "message_not_found")


# -- lists -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PREFIX)
def test_paging_newest_first(shared_service: Service, path: str) -> None:
    ids = [shared_service.post(path, SENDS[path]).json["id"] for _ in range(5)]
    first = shared_service.get(f"{path}?limit=2").json
    assert (first["object"], first["has_more"]) == ("list", True)
    second = shared_service.get(f"{path}?limit=3&after={first['data'][-1]['id']}").json
    assert [item["id"] for item in first["data"] + second["data"]] == ids[::-1]
    oldest = f"{PREFIX[path]}{'0' * 26}"  # an unknown id is a valid cursor
    assert shared_service.get(f"{path}?after={oldest}").json == {"object": "list", "has_more": False, "data": []}


@pytest.mark.parametrize(
    ("path", "to"), [("/v1/emails", "delivered+last@simulator.test"), ("/v1/verify", "+15005551070")]
)
def test_the_last_page_has_no_more(shared_service: Service, path: str, to: str) -> None:
    for _ in range(2):
        assert shared_service.post(path, SENDS[path] | {"to": to}).status == 202
    query = f"{path}?to={to.replace('+', '%2B')}"
    pages = [shared_service.get(f"{query}&limit={limit}").json for limit in (1, 2, 3)]
    assert [(len(page["data"]), page["has_more"]) for page in pages] == [(1, True), (2, False), (2, False)]


@pytest.mark.parametrize("path", PREFIX)
def test_the_default_page_has_twenty(shared_service: Service, path: str) -> None:
    for _ in range(21):
        assert shared_service.post(path, SENDS[path]).status == 202
    page = shared_service.get(path).json
    assert (len(page["data"]), page["has_more"]) == (20, True)


@pytest.mark.parametrize("path", PREFIX)
def test_list_item_equals_the_send_response(shared_service: Service, path: str) -> None:
    sent = shared_service.post(path, SENDS[path]).json
    item = shared_service.get(f"{path}?limit=1").json["data"][0]
    assert item == sent | {"status": item["status"]}


def listed_ids(service: Service, path: str, query: str) -> list[str]:
    answer = service.get(f"{path}?limit=100&{query}")
    assert answer.status == 200, answer.raw
    return [item["id"] for item in answer.json["data"]]


def test_email_list_filters_select_matching_emails(shared_service: Service) -> None:
    def send_until(body: Body, status: str) -> Any:
        return send(shared_service, "/v1/emails", body, status=status)

    bounced = send_until(EMAIL | {"to": "bounced+filter@simulator.test"}, "bounced")
    two = send_until(EMAIL | {"to": "delivered@simulator.test", "cc": ["delivered+FILTER@simulator.test"]}, "delivered")
    three = send_until(
        {"to": "delivered+f3@simulator.test", "from": "a@acme.test", "template_id": "tpl_welcome"}
        | {"variables": {"name": "x"}},
        "delivered",
    )
    path = "/v1/emails"
    assert bounced["id"] in listed_ids(shared_service, path, "status=bounced")
    assert two["id"] not in listed_ids(shared_service, path, "status=bounced")
    assert listed_ids(shared_service, path, "to=Bounced%2Bfilter@simulator.test") == [bounced["id"]]
    assert listed_ids(shared_service, path, "to=delivered%2Bfilter@simulator.test") == [two["id"]]
    assert three["id"] in listed_ids(shared_service, path, "template_id=tpl_welcome")
    assert bounced["id"] not in listed_ids(shared_service, path, "template_id=tpl_welcome")
    assert listed_ids(shared_service, path, "template_id=tpl_none") == []
    assert listed_ids(shared_service, path, "to=bounced%2Bfilter@simulator.test&status=delivered") == []
    # an unencoded plus
    assert listed_ids(shared_service, path, "to=bounced+filter@simulator.test") == [bounced["id"]]
    assert "'Ada <a@b.test>'" in shared_service.get(f"{path}?to=Ada%20%3Ca@b.test%3E").json["error"]["message"]


def test_filters_by_time(shared_service: Service) -> None:
    to = "delivered+time@simulator.test"
    created = [shared_service.post("/v1/emails", EMAIL | {"to": to}).json for _ in range(2)]
    query = f"to={to.replace('+', '%2B')}"
    first, last = created[0]["created_at"], created[1]["created_at"]
    assert listed_ids(shared_service, "/v1/emails", f"{query}&created_after=2020-01-01T00:00:00.000Z") == [
        created[1]["id"],
        created[0]["id"],
    ]
    assert listed_ids(shared_service, "/v1/emails", f"{query}&created_before=2020-01-01T00:00:00.000Z") == []
    assert created[0]["id"] not in listed_ids(shared_service, "/v1/emails", f"{query}&created_after={first}")
    assert created[1]["id"] not in listed_ids(shared_service, "/v1/emails", f"{query}&created_before={last}")


@pytest.mark.parametrize("path", ["/v1/sms", "/v1/whatsapp", "/v1/verify"])
def test_filters_by_phone_and_status(shared_service: Service, path: str) -> None:
    to = {"/v1/sms": "+15005551061", "/v1/whatsapp": "+15005551062", "/v1/verify": "+15005551063"}[path]
    id_ = shared_service.post(path, SENDS[path] | {"to": to}).json["id"]
    assert listed_ids(shared_service, path, f"to={to.replace('+', '%2B')}") == [id_]
    if path == "/v1/verify":
        assert id_ in listed_ids(shared_service, path, "status=pending")
        assert id_ not in listed_ids(shared_service, path, "status=verified")
        assert shared_service.post(f"/v1/verify/{id_}/check", {"code": to[-6:]}).json["verified"]
        assert id_ in listed_ids(shared_service, path, "status=verified")


@pytest.mark.parametrize("path", PREFIX)
@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=-1", "limit"),
        ("limit=ten", "limit"),
        ("limit=1.0", "limit"),
        ("limit=%C2%B2", "limit"),
        ("limit=", "limit"),
        ("limit=1&limit=2", "limit"),
        ("status=lost", "status"),
        ("status=", "status"),
        ("after=xyz_1", "after"),
        ("after=eml_1", "after"),
        ("after=vrf_01JCQ8Z6V3M2N7T0K4H9R5B1X", "after"),
        ("created_after=yesterday", "created_after"),
        ("created_before=2026-13-01T00:00:00.000Z", "created_before"),
        ("created_before=", "created_before"),
        ("page=2", "page"),
    ],
)
def test_invalid_query_values_are_refused(shared_service: Service, path: str, query: str, param: str) -> None:
    assert_refused(shared_service.get(f"{path}?{query}"), 400, "invalid_request", param)


@pytest.mark.parametrize("id_", ["", "welcome", "eml_1"])
def test_an_invalid_template_id_is_refused(shared_service: Service, id_: str) -> None:
    for path in ("/v1/emails", "/v1/sms", "/v1/whatsapp"):
        assert_refused(shared_service.get(f"{path}?template_id={id_}"), 400, "invalid_request", "template_id")


def test_states_of_other_channels_are_refused(shared_service: Service) -> None:
    assert_refused(shared_service.get("/v1/sms?status=bounced"), 400, "invalid_request", "status")
    assert_refused(shared_service.get("/v1/emails?status=read"), 400, "invalid_request", "status")
    assert shared_service.get("/v1/whatsapp?status=read").status == 200


# -- the team itself ---------------------------------------------------------------------------------------


def test_me_returns_the_team(shared_service: Service) -> None:
    account = idle_me(shared_service, "POOR")
    assert tuple(account) == (
        "team",
        "mode",
        "sandbox",
        "scopes",
        "email_quota",
        "currency",
        "credit",
        "held",
        "restrictions",
        "limits",
    )
    assert account["team"] == {"id": "team_poor", "name": "Live, past its quota, with credit for ten SMS"}
    assert (account["mode"], account["sandbox"], account["scopes"], account["currency"]) == (
        "live",
        False,
        ["send"],
        "USD",
    )
    sandbox = shared_service.get("/v1/me", key="SANDBOX").json
    assert (sandbox["mode"], sandbox["sandbox"]) == ("sandbox", True)
    assert shared_service.get("/v1/me", key="ACME_MANAGE").json["scopes"] == ["manage"]


def test_me_counts_recipients(shared_service: Service) -> None:
    before = shared_service.get("/v1/me").json["email_quota"]["used"]
    body = EMAIL | {"to": ["a@example.com", "A@example.com"], "cc": ["b@example.com"], "bcc": ["gone@example.com"]}
    assert shared_service.post("/v1/emails", body).status == 202
    assert shared_service.get("/v1/me").json["email_quota"] == {"limit": 10000, "used": before + 3}


# -- P17: who may read what --------------------------------------------------------------------------------

KEYED = [route for route in ROUTES if route.scopes is not None]
OPEN = [route for route in ROUTES if route.scopes is None and "{" not in route.path]  # a callback authenticates itself


def route_id(route: Route) -> str:
    return f"{route.method} {route.path}"


UNSUBSCRIBE = {"address": "gone@example.com", "category": "newsletter"}
OPT_OUT = {"phone": "+4915100000001", "channel": "sms"}
DRAFTS = {
    "templates": {"channel": "email", "name": "A draft", "subject": "S", "text": "x"},
    "layouts": {"text": "{{content}}"},
}


def own_ids(service: Service) -> dict[str, str]:
    """Return path → id of a record that acme owns."""
    ids = {path: str(service.post(path, body).json["id"]) for path, body in SENDS.items()}
    return {
        **{
            f"/v1/{name}/{{id}}{then}": ids[f"/v1/{name}"]
            for name in ("emails", "sms", "whatsapp")
            for then in ("", "/cancel")
        },
        "/v1/inbox/{id}": ids["/v1/emails"],
        "/v1/verify/{id}": ids["/v1/verify"],
        **{f"/v1/verify/{{id}}/{then}": ids["/v1/verify"] for then in ("check", "resend", "cancel")},
        "/v1/batches/{id}": str(service.post("/v1/emails/batch", {"messages": [EMAIL]}).json["id"]),
        "/v1/templates/{id}/render": "tpl_sms",
        **{
            f"/v1/{name}/{{id}}{then}": own_draft(service, name, then)
            for name in DRAFTS
            for then in ("", "/submit", "/archive", "/versions")
        },
        "/v1/suppressions/{email}": "gone@example.com",
        "/v1/opt-outs/{phone}": str(service.post("/v1/opt-outs", OPT_OUT).json["phone"]),
        "/v1/unsubscribes/{address}": str(service.post("/v1/unsubscribes", UNSUBSCRIBE).json["address"]),
        "/v1/domains/{id}": "dom_acme",
        "/v1/domains/{id}/check": "dom_acme",
        "/v1/domains/{id}/reports": "dom_acme",
        "/v1/domains/{id}/rotate": str(service.post("/v1/domains", {"name": "rotated.acme.test"}).json["id"]),
        **{route.path: own_key(service) for route in ROUTES if route.path.startswith("/v1/keys/{id}")},
        **{route.path: own_webhook(service) for route in ROUTES if route.path.startswith("/v1/webhooks/{id}")},
    }


@functools.cache
def own_draft(service: Service, name: str, then: str) -> str:
    """Create a draft once for all tests of a path, because of the team's quota."""
    return str(service.post(f"/v1/{name}", DRAFTS[name]).json["id"])


def own_key(service: Service) -> str:
    """Return another key of acme, which the tests do not send with."""
    spare_keys = [key for key in service.get("/v1/keys?limit=100").json["data"] if key["name"] == "spare"]
    return str((spare_keys or [service.post("/v1/keys", {"name": "spare"}).json])[0]["id"])


def own_webhook(service: Service) -> str:
    """Return a webhook of acme, created again after its deletion. It only receives test events."""
    webhooks = service.get("/v1/webhooks").json["data"]
    if not webhooks:
        webhooks = [service.post("/v1/webhooks", {"url": "http://127.0.0.1:9/", "events": ["webhook.test"]}).json]
    return str(webhooks[0]["id"])


def body_of(route: Route) -> Body | None:
    if route.body is None:
        return None
    if route.path in SENDS:
        return SENDS[route.path]
    if route.path.endswith("/replay"):
        return {"event_id": "evt_none"}
    if route.body is RescheduleRequest:
        return {"scheduled_at": "2020-01-01T00:00:00Z"}
    return {"code": "123456"} if route.path.endswith("/check") else {}


def send_request(service: Service, route: Route, name: str, key: str | None) -> tuple[int, bytes]:
    """Return status and body without the request id and the requested name, which differ between responses."""
    path = re.sub(r"\{.+?\}", name, route.path)
    answer = service.ask(route.method, path, body_of(route), key=key)
    plain = answer.raw.replace(answer.headers["x-request-id"].encode(), b"")
    return answer.status, plain.replace(name.encode(), b"") if name else plain


@pytest.mark.parametrize("route", KEYED, ids=route_id)
def test_without_a_valid_key_existence_is_not_revealed(shared_service: Service, route: Route) -> None:
    name = own_ids(shared_service).get(route.path, "nobodys")
    for key, status, code in ((None, 401, b"missing_api_key"), ("SUSPENDED", 403, b"team_suspended")):
        existing, unknown = (
            send_request(shared_service, route, name, key),
            send_request(shared_service, route, "never", key),
        )
        assert existing[0] == status and code in existing[1]
        assert existing == unknown


@pytest.mark.parametrize("route", [route for route in KEYED if len(route.scopes or ()) == 1], ids=route_id)
def test_a_key_without_the_scope_does_not_reveal_existence(shared_service: Service, route: Route) -> None:
    key = "ACME_SEND" if route.scopes == ("manage",) else "ACME_MANAGE"
    name = own_ids(shared_service).get(route.path, "nobodys")
    existing, unknown = (
        send_request(shared_service, route, name, key),
        send_request(shared_service, route, "never", key),
    )
    assert existing[0] == 403 and b"insufficient_scope" in existing[1]
    assert existing == unknown


# inbound mail is tested by journeys/test_received.py
# routes of platform keys belong to no team: test_platform_keys.py
ROUTES_WITH_ID = [
    route
    for route in KEYED
    if "{" in route.path and not route.path.startswith("/v1/received/") and route.scopes != ("operate",)
]


@pytest.mark.parametrize("route", ROUTES_WITH_ID, ids=route_id)
def test_record_of_another_team_returns_404(shared_service: Service, route: Route) -> None:
    other = "OTHER" if route.scopes == ("manage",) else "SANDBOX"
    name = own_ids(shared_service)[route.path]
    unknown_id = "never@example.com" if "@" in name else name[:4] + "01JCQ8Z6V3M2N7T0K4H9R5B1XA"
    unknown_id = "+4915100000002" if name.startswith("+") else unknown_id
    foreign = send_request(shared_service, route, name, other)
    assert foreign[0] == 404
    assert foreign == send_request(shared_service, route, unknown_id, other)
    assert send_request(shared_service, route, name, "ACME")[0] != 404
    if route.method == "DELETE" and "@" in name:
        assert shared_service.post("/v1/suppressions", {"email": name, "reason": "bounce"}).status == 201


@pytest.mark.parametrize("path", [*PREFIX, "/v1/suppressions"])
def test_lists_have_only_records_of_the_team(shared_service: Service, path: str) -> None:
    if path in SENDS:
        shared_service.post(path, SENDS[path])
    own_items, others = (shared_service.get(path, key=key).json["data"] for key in ("ACME", "OTHER"))
    assert own_items
    assert [item for item in own_items if item in others] == []


@pytest.mark.parametrize("route", OPEN, ids=route_id)
def test_open_routes_need_no_key(shared_service: Service, route: Route) -> None:
    assert shared_service.ask(route.method, route.path, key=None).status == 200


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("/v1/emails", ["nobody", "+15005550006", "Ada <ada@example.com>", ""]),
        ("/v1/sms", ["nobody", "ada@example.com", "15005550006", ""]),
        ("/v1/whatsapp", ["nobody", "ada@example.com", "+1 500 555 0006"]),
        ("/v1/verify", ["nobody", "15005550006", "@"]),
    ],
)
def test_invalid_to_filters_are_refused(shared_service: Service, path: str, wrong: list[str]) -> None:
    for to in wrong:
        assert_refused(shared_service.get(f"{path}?to={quote(to, safe='')}"), 400, "invalid_request", "to")


@pytest.mark.parametrize("path", ["/v1/sms", "/v1/whatsapp", "/v1/verify"])
def test_an_unencoded_plus_is_accepted(shared_service: Service, path: str) -> None:
    to = "+15005551033"
    sent = shared_service.post(path, SENDS[path] | {"to": to}).json["id"]
    assert sent in listed_ids(shared_service, path, f"to={to}")


def test_invalid_inbox_to_filters_are_refused(shared_service: Service) -> None:
    assert_refused(shared_service.get("/v1/inbox?to=nobody", key="SANDBOX"), 400, "invalid_request", "to")
