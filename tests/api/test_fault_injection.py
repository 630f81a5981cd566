"""`X-Heliograph-Simulate`: faults injected into a request of a sandbox team."""

import http.client
import time
from typing import Any

import pytest

from heliograph.domain.sending.fault_injection import HEADER
from tests.api.sends import EMAIL, assert_refused
from tests.service import TOKENS, Answer, Service, until

MAIL = {"to": "delivered@simulator.test", "subject": "Hello", "text": "Hi"}


def send_simulated(service: Service, simulate: str, key: str = "SANDBOX", body: Any = MAIL, **headers: str) -> Answer:
    return service.post("/v1/emails", body, key=key, headers={HEADER: simulate, **headers})


def newest(service: Service) -> list[str]:
    return [item["id"] for item in service.get("/v1/emails?limit=1", key="SANDBOX").json["data"]]


@pytest.mark.parametrize(
    ("wish", "status", "code"),
    [
        ("status=503", 503, "service_unavailable"),
        ("status=500", 500, "internal_error"),
        ("status=429", 429, "rate_limit_exceeded"),
        ("rate_limit", 429, "rate_limit_exceeded"),
        ("latency=10ms, status=503", 503, "service_unavailable"),
    ],
)
def test_a_simulated_refusal_replaces_the_request(shared_service: Service, wish: str, status: int, code: str) -> None:
    before = newest(shared_service)
    answer = send_simulated(shared_service, wish)
    assert_refused(answer, status, code)
    assert (answer.headers["retry-after"], answer.headers["heliograph-should-retry"]) == ("1", "true")
    assert newest(shared_service) == before


def test_simulated_latency_delays_the_response(shared_service: Service) -> None:
    start = time.monotonic()
    assert send_simulated(shared_service, "latency=300ms").status == 202
    assert time.monotonic() - start >= 0.3


def test_a_simulated_timeout_executes_and_can_be_retried(shared_service: Service) -> None:
    before = newest(shared_service)
    headers = {"Authorization": f"Bearer {TOKENS['SANDBOX']}", "Content-Type": "application/json"}
    headers |= {HEADER: "timeout", "Idempotency-Key": "a timeout"}
    connection = http.client.HTTPConnection("127.0.0.1", shared_service.ports[-1], timeout=1)
    connection.request(
        "POST", "/v1/emails", b'{"to":"delivered@simulator.test","subject":"Hello","text":"Hi"}', headers
    )
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()
    (created,) = until(lambda: (now := newest(shared_service)) != before and now)
    retried = shared_service.post("/v1/emails", MAIL, key="SANDBOX", headers={"Idempotency-Key": "a timeout"})
    assert (retried.status, retried.json["id"]) == (202, created)


@pytest.mark.parametrize(
    "wish", ["", "nonsense", "latency=31s", "latency=2", "latency=-1s", "status=200", "status=418", "timeout=1"]
)
def test_invalid_simulate_headers_are_refused(shared_service: Service, wish: str) -> None:
    assert_refused(send_simulated(shared_service, wish or ","), 400, "invalid_request", HEADER)


def test_compatibility_apis_support_simulation(shared_service: Service) -> None:
    mail = {"from": "hello@sandbox.heliograph.test", "to": "delivered@simulator.test", "subject": "Hi", "text": "Hi"}
    answer = shared_service.post("/compat/resend/emails", mail, key="SANDBOX", headers={HEADER: "rate_limit"})
    assert (answer.status, answer.json["name"]) == (429, "rate_limit_exceeded")


def test_a_live_team_ignores_simulation(shared_service: Service) -> None:
    assert send_simulated(shared_service, "status=503", "ACME", EMAIL).status == 202
