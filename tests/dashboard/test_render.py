"""How pages write spans of time."""

import pytest

from heliograph.dashboard.render import lasted


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        *[(-5, "0 ms"), (0, "0 ms"), (999, "999 ms"), (1000, "1.0 s"), (90_000, "90.0 s"), (120_000, "2 min")],
        *[(7_199_999, "119 min"), (7_200_000, "2 h"), (172_799_999, "47 h"), (172_800_000, "2 days")],
    ],
)
def test_a_span_is_said_in_its_largest_unit(ms: int, text: str) -> None:
    assert lasted(ms) == text
