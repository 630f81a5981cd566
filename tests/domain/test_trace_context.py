"""A caller's traceparent: parsed by the standard; an invalid one is ignored."""

import pytest

from heliograph.domain.network.trace_context import parse_traceparent

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (GIVEN, GIVEN),
        (GIVEN.replace("-01", "-00"), GIVEN.replace("-01", "-00")),
        ("cc" + GIVEN[2:] + "-what-the-future-adds", GIVEN),
        ("cc" + GIVEN[2:], GIVEN),
        (GIVEN + "-more", None),
        ("ff" + GIVEN[2:], None),
        (GIVEN.upper(), None),
        (GIVEN[:-1], None),
        (GIVEN + "0", None),
        ("00-" + "0" * 32 + "-00f067aa0ba902b7-01", None),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01", None),
        ("", None),
        ("00-x", None),
        (GIVEN + "\n", None),
        ("cc" + GIVEN[2:] + "-a\nb", None),
    ],
)
def test_traceparent_header_is_parsed(given: str, read: str | None) -> None:
    assert parse_traceparent(given) == read
