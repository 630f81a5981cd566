"""Programs for Twilio Verify with our service, by Twilio's own library (compat.md)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from twilio.base.exceptions import TwilioRestException
from twilio.rest import Client

from tests.compat.twilio_client import client_for
from tests.service import Service

MAGIC = "+15005550006"


@pytest.fixture
def verify(shared_service: Service) -> Any:
    return client_for(shared_service).verify.v2.services("VA1")


def refused(call: Any, status: int, code: int) -> TwilioRestException:
    with pytest.raises(TwilioRestException) as error:
        call()
    assert (error.value.status, error.value.code) == (status, code), error.value.msg
    return error.value


def test_a_start_and_a_check_by_number(verify: Any, phone: str) -> None:
    started = verify.verifications.create(to=phone, channel="sms")
    assert (started.to, started.channel, started.status, started.valid) == (phone, "sms", "pending", False)
    assert (started.service_sid, started.account_sid) == ("VA1", "AC0123456789")
    assert abs(started.date_created - datetime.now(UTC)) < timedelta(minutes=1)
    assert [attempt["channel"] for attempt in started.send_code_attempts] == ["sms"]
    wrong_check = verify.verification_checks.create(to=phone, code="wrong")
    assert (wrong_check.sid, wrong_check.status, wrong_check.valid) == (started.sid, "pending", False)
    right_check = verify.verification_checks.create(to=phone, code=phone[-6:])
    assert (right_check.sid, right_check.status, right_check.valid) == (started.sid, "approved", True)
    assert verify.verifications(started.sid).fetch().status == "approved"
    refused(lambda: verify.verification_checks.create(to=phone, code=phone[-6:]), 404, 20404)


def test_a_check_by_sid(verify: Any, phone: str) -> None:
    sid = verify.verifications.create(to=phone, channel="sms").sid
    assert verify.verification_checks.create(verification_sid=sid, code=phone[-6:]).valid
    refused(lambda: verify.verification_checks.create(verification_sid="vrf_none", code="123456"), 404, 20404)
    refused(lambda: verify.verification_checks.create(to="+15005550099", code="123456"), 404, 20404)
    refused(lambda: verify.verification_checks.create(code="123456"), 400, 20001)
    refused(lambda: verify.verification_checks.create(to=phone, code="123"), 404, 20404)


def test_the_fifth_wrong_code_is_pending_and_the_next_check_is_refused(verify: Any, phone: str) -> None:
    sid = verify.verifications.create(to=phone, channel="sms").sid
    for _ in range(5):
        check = verify.verification_checks.create(to=phone, code="wrong")
        assert (check.status, check.valid) == ("pending", False)
    refused(lambda: verify.verification_checks.create(to=phone, code=phone[-6:]), 429, 60202)
    assert verify.verifications(sid).fetch().status == "max_attempts_reached"


def test_a_second_start_resends_the_same_code(verify: Any, phone: str) -> None:
    first, second = (verify.verifications.create(to=phone, channel="sms") for _ in range(2))
    assert first.sid == second.sid
    assert len(second.send_code_attempts) == 2
    verify.verification_checks.create(to=phone, code=phone[-6:])
    assert verify.verifications.create(to=phone, channel="sms").sid != first.sid


def test_a_second_start_a_moment_later_is_the_same_verification(verify: Any) -> None:
    """Real numbers have a minimum interval: the code just sent is not sent again."""
    first, second = (verify.verifications.create(to="+447400000178", channel="sms") for _ in range(2))
    assert (second.sid, second.status, len(second.send_code_attempts)) == (first.sid, "pending", 1)


def test_read_by_number_and_cancel(verify: Any, phone: str) -> None:
    sid = verify.verifications.create(to=phone, channel="sms").sid
    assert verify.verifications(phone).fetch().sid == sid
    refused(lambda: verify.verifications(sid).update(status="approved"), 400, 20001)
    assert verify.verifications(sid).update(status="canceled").status == "canceled"
    assert verify.verifications(sid).fetch().status == "canceled"
    refused(lambda: verify.verifications(sid).update(status="canceled"), 404, 20404)
    refused(lambda: verify.verification_checks.create(to=phone, code=phone[-6:]), 404, 20404)


def test_service_is_fetched(verify: Any) -> None:
    service = verify.fetch()
    assert (service.sid, service.friendly_name, service.code_length) == ("VA1", "Acme", 6)
    assert service.account_sid == "AC0123456789"


def test_a_message_rejected_by_the_carrier_failed(verify: Any) -> None:
    assert verify.verifications.create(to="+15005550001", channel="sms").status == "failed"


@pytest.mark.parametrize(
    ("given", "status", "code"),
    [
        ({"to": "0123"}, 400, 60200),
        ({"channel": "call"}, 403, 60223),
        ({"channel": "email", "to": "a@b.test"}, 403, 60223),
        ({"custom_code": "123456"}, 400, 20001),
        ({"custom_message": "Hello"}, 400, 20001),
    ],
)
def test_refused_start_has_the_error_code_of_twilio(verify: Any, given: dict[str, str], status: int, code: int) -> None:
    error = refused(lambda: verify.verifications.create(**{"to": MAGIC, "channel": "sms"} | given), status, code)
    assert len(error.msg) > len("Unable to create record: ")


def test_limits_and_closed_countries(shared_service: Service, verify: Any) -> None:
    number = "+447400000177"
    verify.verifications.create(to=number, channel="sms")
    assert verify.verifications(number).update(status="canceled").status == "canceled"
    refused(lambda: verify.verifications.create(to=number, channel="sms"), 429, 60203)
    closed = client_for(shared_service, "BROKE").verify.v2.services("VA1")
    refused(lambda: closed.verifications.create(to="+491511234567", channel="sms"), 403, 60410)


def test_invalid_key_has_the_error_of_twilio(shared_service: Service) -> None:
    client = Client("AC1", "wrong")
    client.verify.base_url = client_for(shared_service).verify.base_url
    refused(lambda: client.verify.v2.services("VA1").fetch(), 401, 20003)
    plain = shared_service.ask("GET", "/compat/twilio/v2/Services/VA1", key=None)
    assert (plain.status, plain.json["code"]) == (401, 20003)
    assert set(plain.json) == {"code", "message", "more_info", "status"}
