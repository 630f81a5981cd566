"""Test clocks (contract 19): a sandbox team advances its time, and due work happens at its due time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from heliograph.domain.setup.keys import make_token
from tests.api.sends import EMAIL, SMS, Body, assert_refused, settled
from tests.carriers.hook_receiver import Receiver
from tests.service import Answer, Service, until

DAY, HOUR, MINUTE = 86_400, 3600, 60
MAIL: Body = {"to": "delivered@simulator.test", "subject": "Hello", "text": "Hi"}
numbers = count(1)

SETUP = """
[[teams]]
id = "{id}"
mode = "{mode}"
features = ["verify"]
test_clock = {on}
{more}

  [[teams.keys]]
  name = "server"
  token = "{token}"
  scopes = ["send", "manage"]
"""


class Clocked:
    """A sandbox team with a test clock of its own."""

    def __init__(self, service: Service, folder: Path) -> None:
        number = next(numbers)
        self.service, self.folder = service, folder
        self.id, self.token = f"team_clocked_{number}", make_token(bytes([200, number]) * 32)

    def apply(self, on: bool = True, mode: str = "sandbox", more: str = "") -> Any:
        file = self.folder / f"{self.id}.toml"
        values = {"id": self.id, "token": self.token, "on": str(on).lower(), "mode": mode, "more": more}
        file.write_text(SETUP.format(**values))
        return self.service.run("apply", str(file), "--json")

    def get(self, path: str) -> Answer:
        return self.service.get(path, key=self.token)

    def post(self, path: str, body: Body, **headers: str) -> Answer:
        return self.service.post(path, body, key=self.token, headers=headers)

    def send(self, path: str = "/v1/emails", **fields: Any) -> Any:
        answer = self.post(path, (MAIL if path == "/v1/emails" else {}) | fields)
        assert answer.status == 202, answer.raw
        return answer.json

    def now(self) -> datetime:
        return at(self.get("/v1/test-clock").json["now"])

    def advance(self, seconds: int) -> Any:
        answer = self.post("/v1/test-clock", {"advance_s": seconds})
        assert answer.status == 200, answer.raw
        assert "settled" not in answer.json
        return answer.json

    def events(self) -> list[Any]:
        return list(self.get("/v1/events?limit=100").json["data"])


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def is_about(actual: str | datetime, expected: datetime, within_s: float = 20) -> bool:
    """Return whether both times are about equal; `within_s`: delay of a busy machine."""
    moment = at(actual) if isinstance(actual, str) else actual
    return abs((moment - expected).total_seconds()) < within_s


@pytest.fixture
def team(shared_service: Service, tmp_path: Path) -> Clocked:
    clocked = Clocked(shared_service, tmp_path)
    process = clocked.apply()
    assert process.returncode == 0, process.stderr
    until(lambda: clocked.get("/v1/test-clock").status == 200)
    return clocked


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Receiver()) as running:
        yield running


# -- the clock -------------------------------------------------------------------------------------------------


def test_the_clock_advances(team: Clocked) -> None:
    real = datetime.now(UTC)
    first = team.get("/v1/test-clock").json
    assert tuple(first) == ("object", "now", "offset_s")
    assert (first["object"], first["offset_s"]) == ("test_clock", 0)
    assert is_about(first["now"], real)
    for days in (5, 55):
        answer = team.advance(days * DAY)
    assert answer["offset_s"] == 60 * DAY
    assert is_about(answer["now"], real + timedelta(days=60))
    assert team.get("/v1/test-clock").json["offset_s"] == 60 * DAY
    assert_refused(team.post("/v1/test-clock", {"advance_s": 1}), 400, "invalid_request", "advance_s")


@pytest.mark.parametrize("seconds", [0, -1, 60 * DAY + 1, True, "60", 1.5, None])
def test_invalid_advances_are_refused(team: Clocked, seconds: Any) -> None:
    assert_refused(team.post("/v1/test-clock", {"advance_s": seconds}), 400, "invalid_request", "advance_s")
    assert team.get("/v1/test-clock").json["offset_s"] == 0


@pytest.mark.parametrize("key", ["ACME", "SANDBOX"])
def test_teams_without_a_clock_get_404(shared_service: Service, key: str) -> None:
    for answer in (
        shared_service.get("/v1/test-clock", key=key),
        shared_service.post("/v1/test-clock", {"advance_s": 60}, key=key),
    ):
        assert_refused(answer, 404, "test_clock_not_found")


def test_a_live_team_cannot_have_a_clock(team: Clocked) -> None:
    process = team.apply(mode="live")
    assert process.returncode != 0
    assert "test_clock" in process.stderr
    assert team.get("/v1/test-clock").status == 200
    assert team.apply(on=False, mode="live").returncode == 0


def test_turning_the_clock_off_deletes_its_messages(team: Clocked) -> None:
    sent, code = team.send(), team.send("/v1/verify", to="+15005550006")
    later = team.send(scheduled_at=(team.now() + timedelta(days=9)).isoformat())
    team.advance(HOUR)
    assert team.events()
    assert team.apply(on=False).returncode == 0
    until(lambda: team.get("/v1/test-clock").status == 404)
    for path in (f"/v1/emails/{sent['id']}", f"/v1/verify/{code['id']}", f"/v1/emails/{later['id']}"):
        assert team.get(path).status == 404
    assert team.events() == []
    assert team.get("/v1/emails").json["data"] == []
    assert team.apply().returncode == 0
    until(lambda: team.get("/v1/test-clock").status == 200)
    assert team.get("/v1/test-clock").json["offset_s"] == 0
    assert is_about(team.send()["created_at"], datetime.now(UTC))


# -- what goes by it -------------------------------------------------------------------------------------------


def test_responses_events_and_lists_use_team_time(team: Clocked) -> None:
    team.advance(5 * DAY)
    start = team.now()
    assert is_about(start, datetime.now(UTC) + timedelta(days=5))
    sent = team.send()
    assert is_about(sent["created_at"], start)
    message = settled(team.service, f"/v1/emails/{sent['id']}", team.token)
    assert all(is_about(event["created_at"], start) for event in message["events"])
    assert is_about(message["recipients"][0]["updated_at"], start)
    events = until(lambda: len(published := team.events()) == 2 and published)
    assert all(is_about(event["created_at"], start) for event in events)
    for query, hits in (
        (f"created_after={(start - timedelta(minutes=5)):%Y-%m-%dT%H:%M:%SZ}", 1),
        ("created_after=2026-01-01T00:00:00Z", 1),
        (f"created_before={(start - timedelta(minutes=5)):%Y-%m-%dT%H:%M:%SZ}", 0),
    ):
        assert len(team.get(f"/v1/emails?{query}").json["data"]) == hits
    assert is_about(team.post("/v1/suppressions", {"email": "a@example.com"}).json["created_at"], start)
    assert len(team.get(f"/v1/inbox?after={(start - timedelta(minutes=5)):%Y-%m-%dT%H:%M:%SZ}").json["data"]) == 1


def test_scheduled_messages_are_sent_in_order_at_their_times(team: Clocked) -> None:
    start = team.now()
    planned = {days: team.send(scheduled_at=(start + timedelta(days=days)).isoformat())["id"] for days in (3, 1, 2)}
    team.advance(4 * DAY)
    by_days = {days: team.get(f"/v1/emails/{id_}").json for days, id_ in planned.items()}
    for days, message in by_days.items():
        assert message["status"] == "delivered"
        assert all(is_about(event["created_at"], start + timedelta(days=days)) for event in message["events"])
    order = [event["data"]["id"] for event in team.events() if event["type"] == "email.delivered"]
    assert order == [planned[days] for days in (1, 2, 3)]


def test_messages_expire_during_an_advance(team: Clocked) -> None:
    start = team.now()
    expires = start + timedelta(hours=2)
    id_ = team.send(to="deferred@simulator.test", expires_at=expires.isoformat())["id"]
    team.advance(DAY)
    message = team.get(f"/v1/emails/{id_}").json
    assert message["status"] == "failed"
    last = message["events"][-1]
    assert (last["detail"]["reason"], is_about(last["created_at"], expires)) == ("expired", True)
    assert_refused(team.post("/v1/emails", MAIL | {"expires_at": expires.isoformat()}), 400, "invalid_schedule")


def test_code_expires_after_an_advance(team: Clocked) -> None:
    code = team.send("/v1/verify", to="+15005550006")
    expires = at(code["expires_at"])
    team.advance(int((expires - team.now()).total_seconds()) + 1)
    assert team.get(f"/v1/verify/{code['id']}").json["status"] == "expired"
    checked = team.post(f"/v1/verify/{code['id']}/check", {"code": "000000"}).json
    assert (checked["verified"], checked["status"]) == (False, "expired")
    assert [item["status"] for item in team.get("/v1/verify?status=expired").json["data"]] == ["expired"]


def test_velocity_limit_ends_after_an_advance(team: Clocked, shared_service: Service) -> None:
    phone = "+447400990011"
    assert team.apply(more=f'recipients = [{{ address = "{phone}" }}]').returncode == 0
    until(lambda: team.post("/v1/verify?dry_run=true", {"to": phone}).status == 200)
    team.send("/v1/verify", to=phone)
    repeated = team.post("/v1/verify", {"to": phone})
    assert_refused(repeated, 429, "verify_rate_limited")
    team.advance(int(repeated.headers["retry-after"]))
    team.send("/v1/verify", to=phone)


def test_idempotency_key_expires_after_an_advance_of_a_day(team: Clocked) -> None:
    first, second = (team.post("/v1/emails", MAIL, **{"Idempotency-Key": "a"}).json["id"] for _ in range(2))
    assert first == second
    team.advance(24 * HOUR + 1)
    assert team.post("/v1/emails", MAIL, **{"Idempotency-Key": "a"}).json["id"] != first


def test_messages_are_deleted_when_an_advance_ends_their_retention(team: Clocked) -> None:
    sent, code = team.send(), team.send("/v1/verify", to="+15005550006")
    settled(team.service, f"/v1/emails/{sent['id']}", team.token)
    assert team.apply(more="keep_content_days = 2\nkeep_messages_days = 30").returncode == 0
    until(lambda: "keep" in str(team.get("/v1/me").raw) or True)
    team.advance(29 * DAY)
    assert team.get(f"/v1/emails/{sent['id']}").status == 200
    team.advance(2 * DAY)
    assert team.get(f"/v1/emails/{sent['id']}").status == 404
    assert team.get(f"/v1/verify/{code['id']}").status == 404


# -- retries ---------------------------------------------------------------------------------------------------


def test_five_days_of_retries_to_a_dead_webhook(team: Clocked, receiver: Receiver) -> None:
    receiver.scripts = {"/dead": ("500",), "/well": ("200",)}
    hooks = {
        path: team.post("/v1/webhooks", {"url": receiver.url + path, "events": ["email.delivered"]}).json["id"]
        for path in ("/dead", "/well")
    }
    start = team.now()
    id_ = team.send()["id"]
    team.advance(6 * DAY)
    (delivery,) = team.get(f"/v1/webhooks/{hooks['/dead']}/deliveries").json["data"]
    times = [(at(attempt["at"]) - start).total_seconds() for attempt in delivery["attempts"]]
    steps = [later - earlier for earlier, later in pairwise(times)]
    expected = [5, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR]
    assert len(steps) == len(expected)
    assert all(0.8 * step <= took <= 1.2 * step + 20 for took, step in zip(steps, expected, strict=True))
    assert [attempt.path for attempt in receiver.received].count("/well") == 1
    assert team.get(f"/v1/emails/{id_}").json["status"] == "delivered"
    for attempt in receiver.received:
        signed = int(attempt.headers["webhook-timestamp"])
        assert abs(signed - attempt.at) < 60, "signatures keep real time"


def test_a_live_team_is_not_affected(team: Clocked) -> None:
    service = team.service
    scheduled = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    waits = service.post("/v1/emails", EMAIL | {"scheduled_at": scheduled}, key="ACME").json["id"]
    team.advance(2 * DAY)
    assert service.get(f"/v1/emails/{waits}", key="ACME").json["status"] == "queued"
    sent = service.post("/v1/sms", SMS, key="ACME").json
    assert is_about(sent["created_at"], datetime.now(UTC))


def test_five_days_of_deferrals(team: Clocked) -> None:
    start = team.now()
    id_ = team.send(to="deferred@simulator.test")["id"]
    team.advance(6 * DAY)
    message = team.get(f"/v1/emails/{id_}").json
    assert message["status"] == "failed"
    event_types = [event["type"] for event in team.events()]
    assert event_types == ["email.delayed", "email.failed"]
    delayed, failed = (at(event["created_at"]) for event in team.events())
    assert is_about(delayed, start + timedelta(minutes=5), 30)
    assert timedelta(days=4, hours=19) < failed - start < timedelta(days=5)
    times = [at(event["created_at"]) for event in message["events"]]
    assert times == sorted(times)
