"""POST /v1/verify: response (spec 2.5), limits (contract 8), and each error of spec 7.4 at the start."""

import re
from datetime import datetime, timedelta

import pytest

from tests.api.sends import VERIFY, Body, assert_refused, idle_me, without
from tests.service import Service, until


def test_start_returns_the_documented_record(shared_service: Service) -> None:
    answer = shared_service.post("/v1/verify", VERIFY)
    assert answer.status == 202
    record = answer.json
    assert tuple(record) == ("id", "channel", "to", "status", "sandbox", "expires_at", "error_message")
    assert re.fullmatch("vrf_[0-9A-HJKMNP-TV-Z]{26}", record["id"])
    assert without(record, "id", "expires_at") == {
        "channel": "sms",
        "to": "+15005550006",
        "status": "pending",
        "sandbox": False,
        "error_message": None,
    }
    assert shared_service.get(f"/v1/verify/{record['id']}").json == record


def test_a_verification_expires_after_ten_minutes(shared_service: Service) -> None:
    before = datetime.now().astimezone()
    expires = datetime.fromisoformat(shared_service.post("/v1/verify", VERIFY).json["expires_at"])
    after = datetime.now().astimezone()
    slack, life = timedelta(milliseconds=1), timedelta(minutes=10)
    assert before - slack <= expires - life <= after


@pytest.mark.parametrize("channel", [None, "sms"])
def test_sms_is_the_default_channel(shared_service: Service, channel: str | None) -> None:
    answer = shared_service.post("/v1/verify", VERIFY | {"channel": channel})
    assert (answer.status, answer.json["channel"]) == (202, "sms")


@pytest.mark.parametrize("to", ["+15005550001", "+15005550007", "+33612345678"])
def test_a_carrier_rejection_is_not_an_error_and_is_free(shared_service: Service, to: str) -> None:
    before = idle_me(shared_service, "ACME")["credit"]
    answer = shared_service.post("/v1/verify", {"to": to})
    assert (answer.status, answer.json["status"]) == (202, "failed")
    assert answer.json["error_message"]
    assert idle_me(shared_service, "ACME")["credit"] == before


def test_sandbox_is_free(shared_service: Service) -> None:
    def start() -> dict[str, str] | None:  # another test may just have sent a code to this number
        answer = shared_service.post("/v1/verify", {"to": "+447400123456"}, key="SANDBOX")
        return answer.json if answer.status == 202 else None

    started = until(start)
    assert (started["status"], started["sandbox"]) == ("pending", True)
    assert shared_service.get("/v1/me", key="SANDBOX").json["credit"] == "0.0000"


ROWS: list[tuple[str, Body, int, str]] = [
    ("ACME", {"to": "14155550123"}, 400, "invalid_phone"),
    ("ACME", {"to": "+1 415 555 0123"}, 400, "invalid_phone"),
    ("ACME", {"channel": "call"}, 400, "unsupported_channel"),
    ("ACME", {"channel": "whatsapp"}, 400, "unsupported_channel"),
    ("ACME", {"channel": "SMS"}, 400, "unsupported_channel"),
    ("ACME", {"channel": ""}, 400, "unsupported_channel"),
    ("ACME", {"channel": 1}, 400, "invalid_request"),
    ("BROKE", {"to": "+447400123456"}, 400, "insufficient_credit"),
    ("BARE", {}, 403, "feature_not_on_plan"),
    ("SANDBOX", {"to": "+447400999999"}, 403, "recipient_not_allowed"),
    ("SUSPENDED", {}, 403, "team_suspended"),
    ("NARROW", {"to": "+14155550100"}, 429, "verify_rate_limited"),
]


@pytest.mark.parametrize(("key", "extra", "status", "code"), ROWS)
def test_a_start_is_refused(shared_service: Service, key: str, extra: Body, status: int, code: str) -> None:
    answer = shared_service.post("/v1/verify", VERIFY | extra, key=key)
    assert_refused(answer, status, code)
    if status == 429:
        assert int(answer.headers["retry-after"]) >= 1


def test_one_start_in_thirty_seconds_for_a_phone(shared_service: Service) -> None:
    body = {"to": "+447400000101"}
    assert shared_service.post("/v1/verify", body).status == 202
    answer = shared_service.post("/v1/verify", body)
    assert_refused(answer, 429, "verify_rate_limited", "to")
    assert 1 <= int(answer.headers["retry-after"]) <= 30
    assert shared_service.post("/v1/verify", {"to": "+447400000102"}).status == 202


def test_a_dry_run_checks_velocity_limits(shared_service: Service) -> None:
    body = {"to": "+447400000103"}
    dry_runs = [shared_service.post("/v1/verify?dry_run=true", body) for _ in range(2)]
    assert [(answer.status, answer.json["country"]) for answer in dry_runs] == [(200, "GB")] * 2
    assert shared_service.post("/v1/verify", body).status == 202
    assert_refused(shared_service.post("/v1/verify?dry_run=true", body), 429, "verify_rate_limited", "to")


def test_magic_numbers_have_no_velocity_limit(shared_service: Service) -> None:
    assert {shared_service.post("/v1/verify", VERIFY).status for _ in range(25)} == {202}


def test_a_live_team_verifies_magic_numbers_only_if_enabled(shared_service: Service) -> None:
    for to in ("+15005550006", "+15005551042"):
        answer = shared_service.post("/v1/verify", {"to": to}, key="OTHER")
        assert (answer.status, answer.json["status"]) == (202, "failed")
        assert "magic number" in answer.json["error_message"] and "verify.magic" in answer.json["error_message"]
        check = shared_service.post(f"/v1/verify/{answer.json['id']}/check", {"code": to[-6:]}, key="OTHER")
        assert (check.status, check.json["verified"], check.json["status"]) == (200, False, "failed")
    assert shared_service.get("/v1/me", key="OTHER").json["held"] == "0.0000"


def test_a_resend_sends_the_same_code(shared_service: Service) -> None:
    started = shared_service.post("/v1/verify", VERIFY).json
    resent = shared_service.post(f"/v1/verify/{started['id']}/resend", None)
    assert (resent.status, resent.json) == (202, started)
    limited = shared_service.post("/v1/verify", {"to": "+447400000104"}).json
    assert_refused(shared_service.post(f"/v1/verify/{limited['id']}/resend", None), 429, "verify_rate_limited", "to")


def test_a_resend_is_idempotent(shared_service: Service) -> None:
    started = shared_service.post("/v1/verify", VERIFY).json
    path, key = f"/v1/verify/{started['id']}/resend", {"Idempotency-Key": "again-1"}
    first = shared_service.post(path, None, headers=key)
    limited = shared_service.post("/v1/verify", {"to": "+447400000105"}).json
    replay = shared_service.post(path, {}, headers=key)
    assert (first.status, replay.status, replay.raw) == (202, 202, first.raw)
    assert "idempotency-replayed" not in first.headers and replay.headers["idempotency-replayed"] == "true"
    other = f"/v1/verify/{limited['id']}/resend"
    assert_refused(shared_service.post(other, {}, headers=key), 409, "idempotency_key_reused", "Idempotency-Key")
    assert_refused(shared_service.post(other, {}, headers={"Idempotency-Key": "limited"}), 429, "verify_rate_limited")
    assert_refused(shared_service.post(path, {}, headers={"Idempotency-Key": ""}), 400, "invalid_idempotency_key")


@pytest.mark.parametrize("path", ["resend", "cancel"])
def test_unexpected_fields_are_refused(shared_service: Service, path: str) -> None:
    started = shared_service.post("/v1/verify", VERIFY).json
    path = f"/v1/verify/{started['id']}/{path}"
    assert_refused(shared_service.post(path, {"channel": "email"}), 400, "invalid_request", "channel")
    assert_refused(shared_service.post(path, []), 400, "invalid_request")
    assert_refused(shared_service.post(path, b"{"), 400, "invalid_json")
    text = {"Content-Type": "text/plain"}
    assert_refused(shared_service.post(path, b"{}", headers=text), 415, "unsupported_media_type")
    assert shared_service.post(path, {}).status in (200, 202)


def test_a_verification_is_canceled(shared_service: Service) -> None:
    started = shared_service.post("/v1/verify", VERIFY).json
    canceled = shared_service.post(f"/v1/verify/{started['id']}/cancel", None)
    assert canceled.status == 200
    assert canceled.json == started | {"status": "failed", "error_message": "Canceled by the caller."}
    check = shared_service.post(f"/v1/verify/{started['id']}/check", {"code": "000000"})
    assert (check.json["verified"], check.json["status"]) == (False, "failed")
    assert_refused(shared_service.post(f"/v1/verify/{started['id']}/resend", None), 409, "verification_ended", "id")


@pytest.mark.parametrize("path", ["resend", "cancel"])
def test_unknown_verifications_return_404(shared_service: Service, path: str) -> None:
    started = shared_service.post("/v1/verify", VERIFY).json
    answer = shared_service.post(f"/v1/verify/{started['id']}/{path}", None, key="OTHER")
    assert_refused(answer, 404, "verification_not_found", "id")
