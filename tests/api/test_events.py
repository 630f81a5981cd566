"""GET /v1/events (contract 12): the feed, oldest event first, with the bodies of contract 10."""

from typing import Any

import pytest

from tests.api.sends import SMS, WHATSAPP, assert_refused, send
from tests.service import Service, until

BODY = ("id", "type", "created_at", "team_id", "sandbox", "sequence", "data")


def feed(service: Service, after: str = "", limit: int = 100) -> Any:
    return service.get(f"/v1/events?limit={limit}" + (f"&after={after}" if after else "")).json


def newest(service: Service) -> str:
    """Return the id of the feed's last event."""
    page = service.get("/v1/events?order=newest&limit=1").json
    return str(page["data"][0]["id"]) if page["data"] else ""


def message_events(service: Service, message: Any, after: str) -> Any:
    """Return a message's events, once all are in the feed."""
    expected = [event["id"] for event in message["events"] if event["sequence"]]

    def check() -> Any:
        events = [event for event in feed(service, after)["data"] if event["data"].get("id") == message["id"]]
        return events if [event["id"] for event in events] == expected else None

    return until(check)


def test_a_messages_events_in_order(shared_service: Service) -> None:
    send(shared_service, "/v1/sms", SMS)
    start = newest(shared_service)
    message = send(shared_service, "/v1/whatsapp", WHATSAPP, status="read")
    events = message_events(shared_service, message, start)
    assert [tuple(event) for event in events] == [BODY] * 3
    assert [event["type"] for event in events] == ["whatsapp.sent", "whatsapp.delivered", "whatsapp.read"]
    assert [event["sequence"] for event in events] == [1, 2, 3]
    assert {(event["team_id"], event["sandbox"]) for event in events} == {("team_acme", False)}
    last = events[-1]["data"]
    assert (last["status"], last["previous_status"], last["message_status"]) == ("read", "delivered", "read")
    assert (last["to"], last["recipient"]) == (WHATSAPP["to"], WHATSAPP["to"])


def test_the_cursor_reads_each_event_once(shared_service: Service) -> None:
    start = newest(shared_service)
    message = send(shared_service, "/v1/sms", SMS)
    expected = [event["id"] for event in message_events(shared_service, message, start)]
    first = feed(shared_service, start, 1)
    assert ([event["id"] for event in first["data"]], first["has_more"]) == (expected[:1], True)
    rest = feed(shared_service, expected[0])
    assert [event["id"] for event in rest["data"]] == expected[1:]
    assert feed(shared_service, expected[-1]) == {"object": "list", "has_more": False, "data": []}


def test_the_default_page_has_20_events(shared_service: Service) -> None:
    start = newest(shared_service)
    for _ in range(11):
        shared_service.post("/v1/sms", SMS)
    until(lambda: len(feed(shared_service, start)["data"]) == 22)
    page = shared_service.get(f"/v1/events?after={start}").json
    assert (len(page["data"]), page["has_more"]) == (20, True)


@pytest.mark.parametrize(
    "query", ["after=eml_1", "after=evt_1", "after=1", "limit=0", "limit=101", "limit=x", "type=sms.sent", "order=up"]
)
def test_invalid_page_parameters_are_refused(shared_service: Service, query: str) -> None:
    assert_refused(shared_service.get(f"/v1/events?{query}"), 400, "invalid_request", query.split("=")[0])


def test_after_with_another_teams_event_is_refused(shared_service: Service) -> None:
    send(shared_service, "/v1/sms", SMS)
    last = until(lambda: newest(shared_service))
    unknown = f"{last[:4]}{'0' * 26}"
    assert_refused(shared_service.get(f"/v1/events?after={unknown}"), 400, "invalid_request", "after")
    assert_refused(shared_service.get(f"/v1/events?after={last}", key="OTHER"), 400, "invalid_request", "after")
    both = shared_service.get(f"/v1/events?order=newest&after={last}")
    assert_refused(both, 400, "invalid_request", "after")


def test_order_newest_is_the_feed_read_backwards(shared_service: Service) -> None:
    start = newest(shared_service)
    message = send(shared_service, "/v1/sms", SMS)
    expected = [event["id"] for event in message_events(shared_service, message, start)]
    page = shared_service.get(f"/v1/events?order=newest&limit={len(expected)}").json
    assert [event["id"] for event in page["data"]] == expected[::-1]


def test_a_team_sees_only_its_own(shared_service: Service) -> None:
    send(shared_service, "/v1/sms", SMS)
    until(lambda: feed(shared_service)["data"] != [])
    others = shared_service.get("/v1/events", key="OTHER").json["data"]  # which has events of other tests
    assert {event["team_id"] for event in others} <= {"team_other"}
