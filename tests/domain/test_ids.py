import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.ids import PREFIXES, parse_date_header, parse_timestamp, timestamp, ulid

MS = 1_794_735_000_000
random80 = st.integers(0, 2**80 - 1)
ms48 = st.integers(0, 2**48 - 1)


@pytest.mark.parametrize(
    ("ms", "random", "body"),
    [
        (0, 0, "0" * 26),
        (0, 1, "0" * 25 + "1"),
        (0, 31, "0" * 25 + "Z"),
        (0, 2**40, "0" * 17 + "1" + "0" * 8),
        (1, 0, "0" * 9 + "1" + "0" * 16),
        (2**48 - 1, 2**80 - 1, "7" + "Z" * 25),
        (1_469_918_176_385, 0, "01ARYZ6S41" + "0" * 16),  # the ULID specification's own example
    ],
)
def test_ulid_encodes_time_and_randomness(ms: int, random: int, body: str) -> None:
    assert ulid(ms, random) == body


@settings(max_examples=60, database=None)
@given(ms48, random80, ms48, random80)
def test_ulids_sort_by_time_then_randomness(ms: int, random: int, ms2: int, random2: int) -> None:
    assert len(ulid(ms, random)) == 26
    assert (ulid(ms, random) < ulid(ms2, random2)) == ((ms, random) < (ms2, random2))


def test_id_prefixes_are_unique() -> None:
    assert len(set(PREFIXES.values())) == len(PREFIXES)
    assert all(prefix.endswith("_") for prefix in PREFIXES.values())


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (MS, "2026-11-15T09:30:00.000Z"),
        (MS + 7, "2026-11-15T09:30:00.007Z"),
        (MS - 1, "2026-11-15T09:29:59.999Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_timestamp_round_trips(ms: int, text: str) -> None:
    assert timestamp(ms) == text
    assert parse_timestamp(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-11-15T09:30:00Z", MS),
        ("2026-11-15t09:30:00z", MS),
        ("2026-11-15T09:30:00.5Z", MS + 500),
        ("2026-11-15T09:30:00.123456789Z", MS + 123),
        ("2026-11-15T10:30:00+01:00", MS),
        ("2026-11-15T04:00:00.250-05:30", MS + 250),
        ("0001-01-01T23:59:00+23:59", -62135596800000),
    ],
)
def test_timestamp_accepts_other_spellings(text: str, ms: int) -> None:
    assert parse_timestamp(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "1794735000",
        "2026-11-15",
        "2026-11-15T09:30:00",
        "2026-11-15T09:30Z",
        "2026-11-15 09:30:00Z",
        "2026-02-30T09:30:00Z",
        "2026-11-15T25:30:00Z",
        "2026-11-15T09:30:60Z",
        "2026-11-15T09:30:00+24:00",
        "2026-11-15T09:30:00.Z",
        "2026-11-15T09:30:00Z\n",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",  # in UTC, outside of the representable years
        "9999-12-31T23:59:59-14:00",
        "٢٠٢٦-11-15T09:30:00Z",
    ],
)
def test_timestamp_invalid_is_not_parsed(text: str) -> None:
    assert parse_timestamp(text) is None


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("Tue, 17 Nov 2026 09:30:00 GMT", 1_794_907_800_000),
        ("Tue, 17 Nov 2026 09:30:00 -0000", 1_794_907_800_000),
        ("Tue, 17 Nov 2026 10:30:00 +0100", 1_794_907_800_000),
        ("soon", None),
        ("", None),
    ],
)
def test_date_header_is_parsed_in_any_local_time_zone(
    text: str, ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result does not depend on the time zone of this machine."""
    monkeypatch.setenv("TZ", "Pacific/Chatham")
    time.tzset()
    try:
        assert parse_date_header(text) == ms
    finally:
        monkeypatch.undo()
        time.tzset()
