"""`Idempotency-Key` on every sending endpoint (spec 4.1.3, contract 9)."""

import asyncio
import json
import re
import socket
import threading
from pathlib import Path

import pytest

from heliograph.accept.idempotency import _fingerprint
from heliograph.domain.limits import PARSE_IN_THREAD_MIN
from heliograph.domain.sending import idempotency
from heliograph.web.route import Call
from tests.api.sends import EMAIL, SENDS, SMS, WELCOME, assert_refused
from tests.make_request import make_request
from tests.service import SETUP, TOKENS, Answer, Service, until

REPLAYED = "idempotency-replayed"


def send_with_key(service: Service, path: str, body: object, name: str, key: str = "ACME") -> Answer:
    return service.post(path, body, key=key, headers={"Idempotency-Key": name})


def ids(service: Service, path: str) -> list[str]:
    return [item["id"] for item in service.get(f"{path}?limit=100").json["data"]]


@pytest.mark.parametrize("path", SENDS)
def test_a_retry_gets_the_first_answer_and_sends_nothing(shared_service: Service, path: str) -> None:
    first = send_with_key(shared_service, path, SENDS[path], f"retry {path}")
    assert first.status == 202 and REPLAYED not in first.headers
    before = ids(shared_service, path)
    for _ in range(2):
        retried = send_with_key(shared_service, path, SENDS[path], f"retry {path}")
        assert (retried.status, retried.raw, retried.headers[REPLAYED]) == (202, first.raw, "true")
        assert retried.headers["content-type"] == first.headers["content-type"]
        assert retried.headers["x-request-id"] != first.headers["x-request-id"]
    assert ids(shared_service, path) == before


@pytest.mark.parametrize("path", SENDS)
def test_every_request_without_a_key_sends(shared_service: Service, path: str) -> None:
    answers = [shared_service.post(path, SENDS[path]) for _ in range(2)]
    assert answers[0].json["id"] != answers[1].json["id"]


@pytest.mark.parametrize("path", SENDS)
def test_a_different_body_is_refused_and_changes_nothing(shared_service: Service, path: str) -> None:
    first = send_with_key(shared_service, path, SENDS[path], f"reused {path}")
    others: list[object] = [SENDS[path] | {"to": "nobody"}, {}, [], SENDS[path] | {"surprise": 1}]
    for body in others:
        answer = send_with_key(shared_service, path, body, f"reused {path}")
        assert_refused(answer, 409, "idempotency_key_reused", "Idempotency-Key")
        assert answer.json["error"]["type"] == "idempotency_error"
    assert send_with_key(shared_service, path, SENDS[path], f"reused {path}").raw == first.raw


@pytest.mark.parametrize("path", SENDS)
def test_an_error_releases_the_key(shared_service: Service, path: str) -> None:
    bad = SENDS[path] | {"to": "nobody"}
    for body in (bad, SENDS[path] | {"surprise": 1}):
        assert send_with_key(shared_service, path, body, f"released {path}").status == 400
    answer = send_with_key(shared_service, path, SENDS[path], f"released {path}")
    assert answer.status == 202 and REPLAYED not in answer.headers


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/emails", EMAIL | {"to": "gone@example.com"}, 403),
        ("/v1/emails", WELCOME | {"template_id": "tpl_none"}, 404),
        ("/v1/emails", WELCOME | {"template_id": "tpl_sms"}, 409),
        ("/v1/sms", SMS | {"variables": {}}, 422),
        ("/v1/sms", SMS | {"to": "+15005550007"}, 503),
        ("/v1/whatsapp", {"to": "+15005550007", "template_id": "tpl_offer"}, 503),
    ],
)
def test_every_kind_of_refusal_releases_the_key(
    shared_service: Service, path: str, body: dict[str, object], status: int
) -> None:
    name = f"refused {status} {path} {body.get('template_id')}"
    assert send_with_key(shared_service, path, body, name).status == status
    assert send_with_key(shared_service, path, SENDS[path], name).status == 202


def test_a_refusal_of_the_last_check_releases_the_key(shared_service: Service) -> None:
    body = {"to": "+447400000301", "template_id": "tpl_broke_sms", "variables": {"name": "x"}}
    assert send_with_key(shared_service, "/v1/sms", body, "no credit", key="BROKE").code == "insufficient_credit"
    assert (
        send_with_key(shared_service, "/v1/sms", body | {"to": "+15005550006"}, "no credit", key="BROKE").status == 202
    )


def test_key_order_and_white_space_do_not_matter(shared_service: Service) -> None:
    first = send_with_key(shared_service, "/v1/emails", WELCOME, "canonical")
    turned = dict(reversed(WELCOME.items()))
    for raw in (
        json.dumps(turned).encode(),
        json.dumps(WELCOME, indent=4).encode(),
        json.dumps(WELCOME).replace("Ada", "\\u0041da").encode(),
    ):
        retried = send_with_key(shared_service, "/v1/emails", raw, "canonical")
        assert (retried.raw, retried.headers[REPLAYED]) == (first.raw, "true")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"name": "1"}, {"name": 1}),
        ({"name": 1}, {"name": True}),
        ({"name": "Ada"}, {"customer.name": "Ada"}),
        ({"name": 12345678901234567890123}, {"name": 12345678901234567890124}),
    ],
)
def test_different_json_is_a_different_body(shared_service: Service, one: object, two: object) -> None:
    name = f"different {one}"
    assert send_with_key(shared_service, "/v1/emails", WELCOME | {"variables": one}, name).status == 202
    answer = send_with_key(shared_service, "/v1/emails", WELCOME | {"variables": two}, name)
    assert_refused(answer, 409, "idempotency_key_reused")


def test_another_path_is_another_request(shared_service: Service) -> None:
    body = {"to": "+15005550006", "template_id": "tpl_sms", "variables": {"parcel": "x"}}
    assert send_with_key(shared_service, "/v1/sms", body, "two paths").status == 202
    assert_refused(send_with_key(shared_service, "/v1/whatsapp", body, "two paths"), 409, "idempotency_key_reused")


def test_same_idempotency_key_of_two_api_keys_is_independent(shared_service: Service) -> None:
    answers = [send_with_key(shared_service, "/v1/sms", SMS, "shared name", key=key) for key in ("ACME", "ACME_SEND")]
    assert [answer.status for answer in answers] == [202, 202]
    assert answers[0].json["id"] != answers[1].json["id"]
    assert all(REPLAYED not in answer.headers for answer in answers)


@pytest.mark.parametrize("name", ["x", "x" * 255, " inner space ", "~!@#$%^&*()", "a,b"])
def test_valid_keys_are_accepted(shared_service: Service, name: str) -> None:
    assert send_with_key(shared_service, "/v1/sms", SMS, name).status == 202


@pytest.mark.parametrize("path", SENDS)
@pytest.mark.parametrize("name", ["", "x" * 256, "schlüssel", "a\tb"])
def test_invalid_keys_are_refused(shared_service: Service, path: str, name: str) -> None:
    assert_refused(
        send_with_key(shared_service, path, SENDS[path], name), 400, "invalid_idempotency_key", "Idempotency-Key"
    )


@pytest.mark.parametrize("second", ["a", "b"])
def test_a_repeated_header_is_refused(shared_service: Service, second: str) -> None:
    raw = json.dumps(SMS).encode()
    head = (
        "POST /v1/sms HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {TOKENS['ACME']}\r\nContent-Length: {len(raw)}\r\n"
        f"Idempotency-Key: a\r\nIdempotency-Key: {second}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", shared_service.ports[-1]), 10) as connection:
        connection.sendall(head.encode() + raw)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"invalid_idempotency_key"' in answer


def test_dry_run_does_not_use_the_idempotency_key(shared_service: Service) -> None:
    assert send_with_key(shared_service, "/v1/sms?dry_run=true", SMS, "rehearsed").status == 200
    answer = send_with_key(shared_service, "/v1/sms", SMS, "rehearsed")
    assert answer.status == 202 and REPLAYED not in answer.headers


def at_once(service: Service, bodies: list[object], name: str) -> list[Answer]:
    answers: list[Answer] = []

    def run(body: object) -> None:
        answers.append(send_with_key(service, "/v1/whatsapp", body, name))

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_twenty_concurrent_requests_create_one_message(shared_service: Service) -> None:
    """Repeat until one of the twenty requests arrives while the first is running."""
    body = SENDS["/v1/whatsapp"]
    waiting: list[Answer] = []
    rounds = 0
    while not waiting:
        rounds += 1
        assert rounds < 50, "no request ever met another one"
        before = ids(shared_service, "/v1/whatsapp")[:1]
        answers = at_once(shared_service, [body] * 20, f"at once {rounds}")
        first = [answer for answer in answers if answer.status == 202 and REPLAYED not in answer.headers]
        assert len(first) == 1
        assert ids(shared_service, "/v1/whatsapp")[:2] == [first[0].json["id"], *before]
        assert {answer.raw for answer in answers if answer.status == 202} == {first[0].raw}
        waiting = [answer for answer in answers if answer.status != 202]
    for answer in waiting:
        assert_refused(answer, 409, "idempotency_request_in_progress", "Idempotency-Key")
        assert answer.headers["retry-after"] == "1"
        assert answer.json["error"]["type"] == "idempotency_error"


def test_a_different_body_is_reported_before_in_progress(shared_service: Service) -> None:
    """In either order, the second request is a reused key, not one in progress."""
    for i in range(10):
        bodies = [SENDS["/v1/whatsapp"] | {"variables": {"parcel": str(n)}} for n in range(8)]
        answers = at_once(shared_service, [*bodies], f"different at once {i}")
        codes = sorted(str(answer.code) for answer in answers)
        assert codes == ["None"] + ["idempotency_key_reused"] * 7


def test_a_replay_ignores_later_changes(service: Service, tmp_path: Path) -> None:
    """On both databases: templates are removed, but the replayed responses stay the same."""
    sends = {"/v1/emails": WELCOME, "/v1/sms": SMS}
    first = {path: send_with_key(service, path, body, f"kept {path}") for path, body in sends.items()}
    changed = tmp_path / "changed.toml"
    text = SETUP.read_text()
    for name in ("tpl_welcome", "tpl_sms"):
        text = re.sub(rf'(id = "{name}"\n)', r'\1  status = "archived"\n', text)
    changed.write_text(text)
    service.apply(changed)
    until(lambda: service.post("/v1/sms", SMS).code == "template_not_found")
    for path, body in sends.items():
        retried = send_with_key(service, path, body, f"kept {path}")
        assert (retried.status, retried.raw, retried.headers[REPLAYED]) == (202, first[path].raw, "true")
        assert send_with_key(service, path, body, f"new {path}").code == "template_not_found"


def test_a_replay_survives_a_restart(service: Service) -> None:
    first = {path: send_with_key(service, path, body, f"restart {path}") for path, body in SENDS.items()}
    service.kill()
    service.start()
    for path, body in SENDS.items():
        retried = send_with_key(service, path, body, f"restart {path}")
        assert (retried.status, retried.raw, retried.headers[REPLAYED]) == (202, first[path].raw, "true")


def test_a_large_body_is_fingerprinted_off_the_loop_also_without_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    for name in ("fingerprint", "fingerprint_in_steps"):
        monkeypatch.setattr(idempotency, name, lambda path, body: threads.append(threading.get_ident()))
    request = make_request("POST", "/v1/emails", headers={"idempotency-key": "a"})  # chunked: no content-length
    for size in (PARSE_IN_THREAD_MIN, PARSE_IN_THREAD_MIN + 1):
        retry = Call(None, None, None, request, {}, None, {}, size).keyed_request()  # type: ignore[arg-type]
        assert retry
        asyncio.run(_fingerprint(retry))
    assert [thread == threading.get_ident() for thread in threads] == [True, False]
