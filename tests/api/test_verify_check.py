"""POST /v1/verify/:id/check: the states of spec 3.2, the response of spec 2.6, and its errors."""

from typing import Any

import pytest

from tests.api.sends import assert_refused
from tests.service import Service

RIGHT_CODE, WRONG_CODE = "000000", "999999"


def start(service: Service, to: str = "+15005550006", key: str = "ACME") -> str:
    answer = service.post("/v1/verify", {"to": to}, key=key)
    assert answer.status == 202
    return str(answer.json["id"])


def check(service: Service, id_: str, code: Any) -> Any:
    answer = service.post(f"/v1/verify/{id_}/check", {"code": code})
    assert answer.status == 200, answer.raw
    return answer.json


def result(id_: str, verified: bool, status: str, remaining: int) -> dict[str, Any]:
    return {"id": id_, "verified": verified, "status": status, "remaining_attempts": remaining}


def test_the_right_code_works_once(shared_service: Service) -> None:
    id_ = start(shared_service)
    assert check(shared_service, id_, RIGHT_CODE) == result(id_, True, "verified", 5)
    assert check(shared_service, id_, RIGHT_CODE) == result(id_, False, "verified", 5)
    assert check(shared_service, id_, WRONG_CODE) == result(id_, False, "verified", 5)
    assert shared_service.get(f"/v1/verify/{id_}").json["status"] == "verified"


def test_a_wrong_code_uses_an_attempt(shared_service: Service) -> None:
    id_ = start(shared_service)
    for remaining in (4, 3, 2, 1):
        assert check(shared_service, id_, WRONG_CODE) == result(id_, False, "pending", remaining)
    assert check(shared_service, id_, RIGHT_CODE) == result(id_, True, "verified", 1)


def test_the_fifth_wrong_code_exhausts(shared_service: Service) -> None:
    id_ = start(shared_service)
    answers = [check(shared_service, id_, WRONG_CODE) for _ in range(5)]
    assert answers[-1] == result(id_, False, "exhausted", 0)
    assert check(shared_service, id_, RIGHT_CODE) == result(id_, False, "exhausted", 0)


@pytest.mark.parametrize("code", ["1234", "1234567890", "      ", "äöü€"])
def test_a_code_has_four_to_ten_characters(shared_service: Service, code: str) -> None:
    id_ = start(shared_service)
    assert check(shared_service, id_, code) == result(id_, False, "pending", 4)


def test_a_failed_start_stays_failed(shared_service: Service) -> None:
    id_ = start(shared_service, "+15005550001")
    assert check(shared_service, id_, RIGHT_CODE) == result(id_, False, "failed", 5)


@pytest.mark.parametrize(
    "body",
    [
        *({"code": code} for code in ("", "123", "12345678901", 123456, None, True, ["123456"], {"a": 1}, 1.5)),
        {},
    ],
)
def test_a_malformed_code_uses_no_attempt(shared_service: Service, body: Any) -> None:
    id_ = start(shared_service)
    assert_refused(shared_service.post(f"/v1/verify/{id_}/check", body), 400, "invalid_code_format", "code")
    assert check(shared_service, id_, WRONG_CODE)["remaining_attempts"] == 4


@pytest.mark.parametrize("id_", ["vrf_01JCQ8Z6V3M2N7T0K4H9R5B1XA", "nothing", "eml_x", "vrf_"])
def test_unknown_verification_ids_return_404(shared_service: Service, id_: str) -> None:
    answer = shared_service.post(f"/v1/verify/{id_}/check", {"code": RIGHT_CODE})
    assert_refused(answer, 404, "verification_not_found")


def test_another_teams_verification_is_unknown_and_untouched(shared_service: Service) -> None:
    id_ = start(shared_service)
    answer = shared_service.post(f"/v1/verify/{id_}/check", {"code": RIGHT_CODE}, key="SANDBOX")
    assert_refused(answer, 404, "verification_not_found")
    assert check(shared_service, id_, RIGHT_CODE)["verified"]


def test_a_check_is_free(shared_service: Service) -> None:
    id_ = start(shared_service)
    before = shared_service.get("/v1/me").json["credit"]
    check(shared_service, id_, WRONG_CODE)
    check(shared_service, id_, RIGHT_CODE)
    assert shared_service.get("/v1/me").json["credit"] == before


@pytest.mark.parametrize("to", ["+15005550006", "+15005551042"])
def test_no_response_contains_the_code(shared_service: Service, to: str) -> None:
    """Magic codes are known, so responses can be searched for them."""
    answer = shared_service.post("/v1/verify", {"to": to})
    fields = {name: value for name, value in answer.json.items() if name not in ("to", "id", "expires_at")}
    assert "code" not in answer.json
    assert to[-6:] not in str(fields) and RIGHT_CODE not in str(fields)
