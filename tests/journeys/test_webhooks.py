"""Webhooks of a running service: events arrive signed and in order; kills lose none (P7, P9 in the short form)."""

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.domain.events import EVENT_TYPES
from heliograph.webhooks.policy.signature import make_secret
from heliograph.webhooks.verification import verify_webhook
from tests.forks import Forked
from tests.journeys.load import ask_database
from tests.service import Service, until

SECRET = make_secret(bytes(range(24)))
# P7; with PROOF=1 in the environment in full.
KILLS, EVENTS = (20, 10_000) if os.environ.get("PROOF") else (3, 300)
WINDOW = 10
BEGUN = 5 * WINDOW  # in flight or not recorded yet (webhooks/endpoint.py)

# Magic recipient → the states that its message goes through once delivery is resumed.
STORIES: dict[str, dict[str, list[str]]] = {
    "emails": {
        "delivered@simulator.test": ["sending", "sent", "delivered"],
        "bounced@simulator.test": ["sending", "bounced"],
        "asyncbounce@simulator.test": ["sending", "sent", "delivered", "bounced"],
        "complained@simulator.test": ["sending", "sent", "delivered", "complained"],
        "failed@simulator.test": ["failed"],
        "softbounce@simulator.test": ["sending", "sent", "delivered"],
    },
    "sms": {
        "+15005550006": ["sending", "sent", "delivered"],
        "+15005550001": ["failed"],
        "+15005550004": ["sending", "sent", "failed"],
    },
    "whatsapp": {
        "+15005550006": ["sending", "sent", "delivered", "read"],
        "+15005550005": ["sending", "sent", "delivered"],
        "+15005550009": ["sending", "sent", "delivered", "read"],
        "+15005550004": ["sending", "sent", "failed"],
    },
}
BODIES: dict[str, dict[str, Any]] = {
    "emails": {"from": "hello@acme.test", "subject": "Hello", "text": "Hello"},
    "sms": {"template_id": "tpl_sms", "variables": {"parcel": "4711"}},
    "whatsapp": {"template_id": "tpl_whatsapp", "variables": {"parcel": "4711"}},
}
VERIFICATIONS = {"+15005550006": ("000000", "verified"), "+15005550005": ("123456", "exhausted")}


class HookService(Service):
    """A service that allows webhooks to receivers on this machine."""

    def __init__(self, database: str, data: Path, step_ms: int = 1) -> None:
        super().__init__(database, data, step_ms)
        self._environment["HELIOGRAPH_WEBHOOK_ALLOW_PRIVATE"] = "127.0.0.0/8"

    def subscribe(self, folder: Path, *urls: str) -> None:
        file = folder / "webhooks.toml"
        hooks = "".join(f'[[teams.webhooks]]\nurl = "{url}"\nsecret = "{SECRET}"\nevents = ["*"]\n' for url in urls)
        file.write_text(f'[[teams]]\nid = "team_acme"\n{hooks}', "utf-8")
        self.apply(file)


class Hooks:
    """A receiver in a process of its own, and its log."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "received.jsonl"
        self._process: Forked | None = None

    def start(self, *scripts: str) -> str:
        options = [option for script in scripts for option in ("--script", script)]
        program = "from tests.carriers.hook_receiver import main; main()"
        self._process = Forked(program, ["--log", str(self._log), *options], os.environ)
        return self._process.stdout.readline().strip()

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()

    def received(self, path: str = "/") -> list[dict[str, Any]]:
        lines = self._log.read_text("utf-8").splitlines() if self._log.exists() else []
        return [request for request in map(json.loads, lines) if request["path"] == path]

    def told(self, path: str = "/") -> list[dict[str, Any]]:
        """Return the events in order of arrival, after checking each signature."""
        return [
            verify_webhook(request["body"].encode(), request["headers"], SECRET, now=request["at"])
            for request in self.received(path)
        ]


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[Hooks]:
    hooks = Hooks(tmp_path)
    yield hooks
    hooks.stop()


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> Iterator[HookService]:
    with HookService(database_url, tmp_path / "data") as service:
        service.apply()
        yield service


def send(service: Service, path: str, to: str) -> str:
    answer = service.post(f"/v1/{path}", BODIES[path] | {"to": to})
    assert answer.status == 202, answer.raw
    return str(answer.json["id"])


def waiting(service: Service) -> int:
    return int(ask_database(service.database, "SELECT count(*) FROM delivery WHERE state = 'waiting'")[0][0])


def published(service: Service) -> set[str]:
    return {id_ for (id_,) in ask_database(service.database, "SELECT id FROM event WHERE message IS NOT NULL")}


def test_every_state_of_every_channel_arrives_in_order(service: HookService, hooks: Hooks, tmp_path: Path) -> None:
    service.subscribe(tmp_path, hooks.start() + "/")
    service.start()
    assert service.run("pause").returncode == 0
    until(lambda: service.post("/v1/emails", BODIES["emails"] | {"to": "a@example.com"}).json["status"] == "queued")
    service.post("/v1/suppressions", {"email": "someone@example.com"})
    until(lambda: "suppression.created" in {event["type"] for event in hooks.told()})  # also while paused
    stories = {send(service, path, to): story for path, all_ in STORIES.items() for to, story in all_.items()}
    assert service.run("resume").returncode == 0
    for to, (code, status) in VERIFICATIONS.items():
        id_ = service.post("/v1/verify", {"to": to}).json["id"]
        stories[id_] = [status]
        while service.post(f"/v1/verify/{id_}/check", {"code": code}).json["status"] == "pending":
            continue
    stories[service.post("/v1/verify", {"to": "+15005550001"}).json["id"]] = ["failed"]
    arrived: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def complete() -> bool:
        arrived.clear()
        for event in hooks.told():
            arrived[event["data"].get("id", "")].append(event)
        return all(len(arrived[id_]) >= len(story) for id_, story in stories.items())

    until(complete)
    for id_, story in stories.items():
        assert [event["data"]["status"] for event in arrived[id_]] == story
        assert [event["sequence"] for event in arrived[id_]] == list(range(1, len(story) + 1))
        assert [event["type"].partition(".")[2] for event in arrived[id_]] == story
    seen = {event["type"] for event in hooks.told()}
    unheard = {"suppression.deleted", "domain.verified", "domain.failed", "credit.low", "batch.done", "webhook.test"}
    apart = (".received", ".delayed", ".status_changed")  # each has tests of its own
    told_elsewhere = {
        one for one in EVENT_TYPES if one.endswith(apart) or one.startswith(("opt_out.", "recipient.", "message."))
    }
    assert seen - told_elsewhere == set(EVENT_TYPES) - unheard - told_elsewhere


def test_no_event_is_lost_when_workers_are_killed(service: HookService, hooks: Hooks, tmp_path: Path) -> None:
    chance = random.Random(0)
    words = [*chance.choices(["200", "500", "reset", "503"], [7, 1, 1, 1], k=EVENTS), "200"]
    service.subscribe(tmp_path, hooks.start(",".join(words)) + "/")
    service.start("api")
    worker = service.start("worker")
    for number in range(EVENTS // 2):
        dies = number % (EVENTS // 2 // KILLS) == 20
        before = len(hooks.received()) if dies else 0
        send(service, "emails", "delivered@simulator.test")
        if dies:
            until(lambda before=before: len(hooks.received()) > before)
            service.kill(worker)
            worker = service.start("worker")
    until(lambda: len(published(service)) == EVENTS)

    def all_told() -> bool:
        # Retries need not wait for their time.
        ask_database(service.database, "UPDATE delivery SET due_at = 1 WHERE state = 'waiting' AND due_at > 1")
        return waiting(service) == 0

    until(all_told)
    bodies: dict[str, set[str]] = defaultdict(set)
    for request, event in zip(hooks.received(), hooks.told(), strict=True):
        assert request["headers"]["webhook-id"] == event["id"]
        bodies[event["id"]].add(request["body"])
    taken = {request["headers"]["webhook-id"] for request in hooks.received() if request["action"] == "200"}
    assert taken == published(service)
    assert {len(same) for same in bodies.values()} == {1}
    assert ask_database(service.database, "SELECT DISTINCT state FROM delivery") == [("delivered",)]
    once = len(taken) + sum(request["action"] != "200" for request in hooks.received())
    assert len(hooks.received()) - once <= KILLS * BEGUN  # attempts in flight or not recorded at a kill are repeated
    assert service.stop(worker) == 0
