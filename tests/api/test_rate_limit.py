"""Rate limits (contract 11): the slow team has two requests per second and a burst of four."""

import time
from typing import Any

import pytest

from heliograph.accept.rate import RateLimits
from heliograph.storage.requests import ProcessUsage
from tests.api.sends import assert_refused
from tests.service import Answer, Service, until

BODY = {"to": "delivered@simulator.test", "subject": "Hi", "text": "Hi"}
HEADERS = ("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset")


def drained_bucket(service: Service) -> Answer:
    """Wait until the whole burst is available; the request that shows this has taken one token."""

    def check() -> Answer | None:
        answer = service.get("/v1/me", key="SLOW")
        if answer.headers["ratelimit-remaining"] == "3":
            return answer
        time.sleep(2.1)
        return None

    limited = until(check)
    assert isinstance(limited, Answer)
    return limited


def drained(service: Service) -> Answer:
    """Return the first refused response."""
    answers = [service.post("/v1/emails", BODY, key="SLOW") for _ in range(8)]
    return next(answer for answer in answers if answer.status == 429)


def test_the_headers_count_down(shared_service: Service) -> None:
    assert drained_bucket(shared_service).headers["ratelimit-limit"] == "4"
    answers = [
        shared_service.get("/v1/me", key="SLOW"),
        shared_service.post("/v1/emails", {}, key="SLOW"),  # a 400 also has them
        shared_service.get("/v1/emails/eml_none", key="SLOW"),  # and a 404
    ]
    assert [answer.status for answer in answers] == [200, 400, 404]
    remaining = [int(answer.headers["ratelimit-remaining"]) for answer in answers]
    assert remaining[0] in (2, 3) and remaining == sorted(remaining, reverse=True)
    for answer in answers:
        assert all(answer.headers[name].isdigit() for name in HEADERS)


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("GET", "/v1/me", {}, 200),
        ("GET", "/v1/errors", {}, 200),  # needs no key, and takes no token
        ("GET", "/healthz", {}, 200),
        ("GET", "/v1/nothing", {}, 404),
        ("GET", "/v1/emails/eml_none", {}, 404),
        ("DELETE", "/v1/me", {}, 405),
        ("POST", "/v1/sms", {"body": b"{"}, 400),
        ("POST", "/v1/sms", {"body": b"{}", "headers": {"Content-Type": "text/plain"}}, 415),
        ("POST", "/v1/sms", {"body": b" " * 65537}, 413),
        ("GET", "/v1/webhooks", {}, 403),
        ("GET", "/v1/me", {"key": "SUSPENDED"}, 403),
        ("GET", "/v1/nothing", {"key": "SUSPENDED"}, 404),
    ],
)
def test_every_answer_to_a_key_has_the_headers(
    shared_service: Service, method: str, path: str, options: dict[str, Any], status: int
) -> None:
    def attempt() -> Answer | None:
        answer = shared_service.ask(method, path, **{"key": "SLOW_SMS", **options})
        return answer if answer.status != 429 else None

    answer: Answer = until(attempt)
    assert (answer.status, [name in answer.headers for name in HEADERS]) == (status, [True] * 3)


@pytest.mark.parametrize("path", ["/v1/me", "/v1/nothing", "/healthz"])
@pytest.mark.parametrize("key", [None, "hk_nobody"])
def test_without_a_key_there_are_no_rate_limit_headers(shared_service: Service, path: str, key: str | None) -> None:
    assert not [name for name in shared_service.get(path, key=key).headers if name in HEADERS]


def test_a_404_consumes_nothing(shared_service: Service) -> None:
    drained_bucket(shared_service)
    remaining = [shared_service.get("/v1/nothing", key="SLOW").headers["ratelimit-remaining"] for _ in range(5)]
    assert remaining == sorted(remaining)


def test_a_429_has_retry_after(shared_service: Service) -> None:
    answer = drained(shared_service)
    assert_refused(answer, 429, "rate_limit_exceeded")
    assert answer.json["error"]["type"] == "rate_limit_error"
    assert (answer.headers["retry-after"], answer.headers["ratelimit-remaining"]) == ("1", "0")
    assert int(answer.headers["ratelimit-reset"]) >= 1


def test_a_429_consumes_nothing(shared_service: Service) -> None:
    drained(shared_service)
    answers = [
        shared_service.post("/v1/emails", BODY, key="SLOW", headers={"Idempotency-Key": f"slow {i}"}) for i in range(5)
    ]
    refused = [i for i, answer in enumerate(answers) if answer.status == 429]
    assert refused
    time.sleep(int(answers[refused[0]].headers["retry-after"]))
    retried = shared_service.post("/v1/emails", BODY, key="SLOW", headers={"Idempotency-Key": f"slow {refused[0]}"})
    assert retried.status == 202
    assert "idempotency-replayed" not in retried.headers


def test_each_key_has_its_own_bucket(shared_service: Service) -> None:
    drained(shared_service)
    assert shared_service.get("/v1/me", key="SUSPENDED").headers["ratelimit-remaining"] == "200"
    assert {shared_service.get("/v1/me").status for _ in range(20)} == {200}


def test_a_suspended_team_and_a_missing_scope_show_the_bucket_too(shared_service: Service) -> None:
    for key in ("SUSPENDED", "SUSPENDED_MANAGE"):
        answer = shared_service.get("/v1/emails", key=key)
        assert answer.status == 403
        assert all(name in answer.headers for name in HEADERS)


# -- over several processes ---------------------------------------------------------------------------------

RATE = 10  # per second, with a burst of 20


def tokens_left(rates: RateLimits, now: int) -> int:
    """Return how many requests are allowed now, without a sync."""
    rates.count_alone()
    count = 0
    while rates.take("key", RATE, now).allowed:
        count += 1
    return count


@pytest.mark.parametrize(
    ("hearings", "expected"),
    [
        ([], 20),
        ([[ProcessUsage("other", "key", 7)]], 20),  # before the first sync, so it is only the baseline
        ([[], [ProcessUsage("other", "key", 7)]], 13),
        ([[ProcessUsage("other", "key", 100)], [ProcessUsage("other", "key", 107)]], 13),
        ([[], [ProcessUsage("other", "key", 7)], [ProcessUsage("other", "key", 7)]], 13),
        ([[], [ProcessUsage("one", "key", 3), ProcessUsage("two", "key", 4)]], 13),
        ([[ProcessUsage("other", "key", 100)], [ProcessUsage("other", "key", 2)]], 18),  # the process restarted
        ([[], [ProcessUsage("other", "another key", 7), ProcessUsage("other", "", 0)]], 20),
        ([[], [ProcessUsage("other", "key", 500)]], 0),
    ],
)
def test_requests_of_other_processes_count(hearings: list[list[ProcessUsage]], expected: int) -> None:
    rates = RateLimits()
    for update in hearings:
        rates.merge_usage(update, lambda _: RATE, 0)
    assert tokens_left(rates, 0) == expected
    assert rates.allowed_counts["key"] == expected


def test_requests_of_other_processes_expire() -> None:
    rates = RateLimits()
    rates.merge_usage([], lambda _: RATE, 0)
    rates.merge_usage([ProcessUsage("other", "key", 10_000)], lambda _: RATE, 0)  # at most one burst is subtracted
    assert tokens_left(rates, 2000) == 0
    assert tokens_left(rates, 3000) == 10


def test_a_key_without_a_limit_is_never_limited() -> None:
    rates = RateLimits()
    rates.merge_usage([], lambda _: 0, 0)
    rates.merge_usage([ProcessUsage("other", "key", 10)], lambda _: 0, 0)
    assert tokens_left(rates, 0) == 20
