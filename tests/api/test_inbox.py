"""The test inbox by the API: messages that simulators delivered to a sandbox team, and waiting for new ones."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from heliograph.api.inbox import WAITS_PER_KEY_MAX
from tests.api.sends import assert_refused
from tests.service import Answer, Service

MAIL = {
    "subject": "Sign in",
    "text": "Your code is 493028.",
    "html": '<a href="https://acme.com/in?a=1&amp;b=2">Go</a>',
}
FIELDS = ("id", "channel", "to", "from", "subject", "text", "html", "code", "links", "created_at")
numbers = count(1)


def fresh() -> str:
    """Return an unused address."""
    return f"delivered+inbox{next(numbers)}@simulator.test"


def send(service: Service, to: str, path: str = "/v1/emails", **fields: Any) -> str:
    body = (MAIL if path == "/v1/emails" else {}) | fields | {"to": to}
    answer = service.post(path, body, key="SANDBOX")
    assert answer.status == 202, answer.raw
    return str(answer.json["id"])


def read(service: Service, key: str = "SANDBOX", path: str = "", **query: Any) -> Answer:
    pairs = "&".join(f"{name}={str(value).replace('+', '%2B')}" for name, value in query.items())
    return service.get(f"/v1/inbox{path}?{pairs}", key=key)


def from_now(service: Service, **query: Any) -> dict[str, str]:
    """Return query parameters that exclude the messages of earlier tests."""
    last = read(service, limit=1, **query).json["data"]
    return {"after": last[0]["id"]} if last else {}


def test_an_email_shows_its_code_and_links(shared_service: Service) -> None:
    to = fresh()
    id_ = send(shared_service, to)
    (entry,) = read(shared_service, to=to.upper(), wait=10).json["data"]
    assert tuple(entry) == FIELDS
    assert (entry["id"], entry["channel"], entry["to"], entry["subject"]) == (id_, "email", [to], "Sign in")
    assert (entry["text"], entry["html"]) == (MAIL["text"], MAIL["html"])
    assert (entry["code"], entry["links"]) == ("493028", ["https://acme.com/in?a=1&b=2"])
    assert "@" in entry["from"]
    assert read(shared_service, path=f"/{id_}").json == entry


def test_codes_are_shown_only_if_the_team_allows_it(shared_service: Service) -> None:
    for phone in ("+447400123457", "+15005550006"):
        id_ = shared_service.post("/v1/verify", {"to": phone}, key="NARROW").json["id"]
        entry = read(shared_service, key="NARROW", path=f"/{id_}").json
        entries = [item for item in read(shared_service, key="NARROW", to=phone).json["data"] if item["id"] == id_]
        assert entries == [entry]
        assert (entry["channel"], entry["code"], entry["text"]) == ("verification", None, None)


def test_sms_are_listed(shared_service: Service) -> None:
    newer = from_now(shared_service, channel="sms", to="+15005550006")
    sms = send(shared_service, "+15005550006", "/v1/sms", template_id="tpl_sandbox_sms", variables={"parcel": "4821"})
    (entry,) = read(shared_service, channel="sms", to="+15005550006", wait=10, limit=1, **newer).json["data"]
    assert (entry["id"], entry["text"], entry["html"], entry["subject"]) == (sms, "Parcel 4821", None, None)


@pytest.mark.parametrize(
    ("phone", "code"), [("+447400123458", None), ("+15005550006", "000000"), ("+15005551042", "551042")]
)
def test_verification_codes_are_listed_until_the_verification_ends(
    shared_service: Service, phone: str, code: str | None
) -> None:
    newer = from_now(shared_service, to=phone)
    id_ = send(shared_service, phone, "/v1/verify")
    (entry,) = read(shared_service, to=phone, wait=10, limit=1, **newer).json["data"]
    assert (entry["id"], entry["channel"]) == (id_, "verification")
    assert entry["code"] in entry["text"]
    assert code in (None, entry["code"])
    assert read(shared_service, path=f"/{id_}").json == entry
    checked = shared_service.post(f"/v1/verify/{id_}/check", {"code": entry["code"]}, key="SANDBOX")
    assert checked.json["verified"] is True
    ended = read(shared_service, path=f"/{id_}").json
    assert (ended["code"], ended["text"]) == (None, None)


def test_number_that_rejects_every_code_has_no_text(shared_service: Service) -> None:
    id_ = send(shared_service, "+15005550005", "/v1/verify")
    entry = read(shared_service, path=f"/{id_}").json
    assert (entry["code"], entry["text"]) == (None, None)


def test_the_list_is_newest_first_with_before_and_after(shared_service: Service) -> None:
    to = fresh()
    ids = []
    for n in range(3):
        ids.append(send(shared_service, to, subject=f"{n}"))
        assert (
            read(shared_service, to=to, wait=10, **({"after": ids[-2]} if n else {})).json["data"][0]["id"] == ids[-1]
        )
    page = read(shared_service, to=to, limit=2).json
    assert ([item["id"] for item in page["data"]], page["has_more"]) == (ids[:0:-1], True)
    page = read(shared_service, to=to, limit=2, before=ids[1]).json
    assert ([item["id"] for item in page["data"]], page["has_more"]) == (ids[:1], False)
    first = read(shared_service, path=f"/{ids[0]}").json["created_at"]
    newer = read(shared_service, to=to, after=first).json["data"]
    assert [item["id"] for item in newer] == ids[:0:-1]
    assert len(read(shared_service, to=to, after="0001-01-01T00:00:00Z").json["data"]) == 3  # before all ids
    assert read(shared_service, to=to, after=ids[2]).json == {"object": "list", "has_more": False, "data": []}


def test_wait_returns_as_soon_as_a_message_arrives(shared_service: Service) -> None:
    to = fresh()
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(read, shared_service, to=to, wait=30)
        other = threads.submit(read, shared_service, to=fresh(), wait=1)
        assert other.result().json["data"] == []  # the other request gets nothing
        assert not waiting.done()
        id_ = send(shared_service, to)
        assert [item["id"] for item in waiting.result().json["data"]] == [id_]


def test_concurrent_waits_are_limited(shared_service: Service) -> None:
    with ThreadPoolExecutor(WAITS_PER_KEY_MAX + 1) as threads:
        waiting = [
            threads.submit(read, shared_service, to="nobody@example.com", wait=2) for _ in range(WAITS_PER_KEY_MAX + 1)
        ]
        answers = [task.result() for task in waiting]
    assert sorted(answer.status for answer in answers) == [*[200] * WAITS_PER_KEY_MAX, 429]
    (refused,) = [answer for answer in answers if answer.status == 429]
    assert (refused.code, refused.headers["retry-after"]) == ("rate_limit_exceeded", "1")
    assert read(shared_service, to="nobody@example.com", wait=1).status == 200


def test_a_live_team_has_no_inbox(shared_service: Service) -> None:
    refused = read(shared_service, key="ACME")
    assert (refused.status, refused.code) == (403, "insufficient_scope")
    assert "sandbox" in refused.json["error"]["message"]
    id_ = shared_service.post("/v1/emails", MAIL | {"to": fresh(), "from": "hi@acme.test"}).json["id"]
    assert read(shared_service, key="ACME", path=f"/{id_}").code == "insufficient_scope"
    assert read(shared_service, path=f"/{id_}").code == "message_not_found"  # of another team


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"wait": "31"}, "wait"),
        ({"wait": "-1"}, "wait"),
        ({"wait": "1.5"}, "wait"),
        ({"limit": "0"}, "limit"),
        ({"after": "yesterday"}, "after"),
        ({"after": "eml_1"}, "after"),
        ({"before": "evt_1"}, "before"),
        ({"before": "eml_1"}, "before"),
        ({"channel": "fax"}, "channel"),
        ({"from": "x"}, "from"),
    ],
)
def test_invalid_queries_are_refused(shared_service: Service, query: dict[str, str], param: str) -> None:
    assert_refused(read(shared_service, **query), 400, "invalid_request", param)


@pytest.mark.parametrize("id_", ["eml_none", "vrf_none", "evt_1", "x"])
def test_unknown_messages_return_404(shared_service: Service, id_: str) -> None:
    assert read(shared_service, path=f"/{id_}").code == "message_not_found"
