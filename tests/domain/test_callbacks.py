"""Which carriers should send callbacks, and when missing callbacks cause a warning."""

from typing import Any

import pytest

from heliograph.domain.delivery.callbacks import expects_callbacks, lacks_callbacks, supports_callbacks
from heliograph.domain.limits import DAY_MS, HOUR_MS
from heliograph.domain.setup.records import CarrierRecord

NOW = 100 * DAY_MS
MAP = {"id": "$.id", "status": "$.status"}


def carrier(kind: str, enabled: bool = True, **options: Any) -> CarrierRecord:
    return CarrierRecord(id="c", channel="sms", kind=kind, options=options, enabled=enabled)


@pytest.mark.parametrize(
    ("one", "address", "calls"),
    [
        (carrier("twilio", auth_token="t"), True, True),
        (carrier("cloud_api"), True, False),
        (carrier("cloud_api", verify_token="v"), True, False),
        (carrier("cloud_api", app_secret="s"), True, True),
        (carrier("http"), True, False),
        (carrier("http", callback_secret="s"), True, False),
        (carrier("http", callback=MAP), True, False),
        (carrier("http", callback_secret="s", callback=MAP), True, True),
        (carrier("http", callback_secret="s", incoming=MAP), True, False),  # only texts are expected
        (carrier("smtp"), False, False),
        (carrier("smtp", callback_secret="s"), False, False),
        (carrier("smtp", provider="postmark"), True, False),
        (carrier("smtp", provider="postmark", callback_secret="s"), True, True),
        (carrier("smtp", provider="ses", callback_secret="s"), True, False),
        (carrier("smtp", provider="ses", callback_topic="arn"), True, True),
        (carrier("smtp", provider="sendgrid", callback_secret="s"), True, False),
        (carrier("smtp", provider="sendgrid", callback_key="k"), True, True),
        (carrier("twilio", enabled=False), True, False),
        (carrier("smpp"), False, False),
        (carrier("mx"), False, False),
        (carrier("simulator"), False, False),
    ],
)
def test_carriers_that_support_and_expect_callbacks_are_known(one: CarrierRecord, address: bool, calls: bool) -> None:
    assert (supports_callbacks(one), expects_callbacks(one)) == (address, calls)


@pytest.mark.parametrize(
    ("day", "hour", "last_at", "silent"),
    [
        (0, 0, None, False),
        (5, 5, None, False),  # its reports may still arrive
        (6, 5, None, True),
        (6, 5, NOW - DAY_MS - 1, True),
        (6, 5, NOW - DAY_MS, False),
        (6, 0, NOW - HOUR_MS, False),
        (0, 0, NOW - 9 * DAY_MS, False),
    ],
)
def test_callbacks_missing_for_too_long_are_detected(day: int, hour: int, last_at: int | None, silent: bool) -> None:
    assert lacks_callbacks(day, hour, last_at, NOW) is silent
