"""The object id that the request log stores for a request."""

import pytest

from heliograph.domain.ids import ulid
from heliograph.domain.operations.request_log import duration_ms, subject_id


@pytest.mark.parametrize(
    ("id_", "subject"),
    [
        ("eml_01KA0000000000000000000000", "eml_01KA0000000000000000000000"),
        ("ada@example.com", ""),
        ("<script>", ""),
        ("../../x", ""),
        ("", ""),
    ],
)
def test_request_log_keeps_only_ids_of_the_caller(id_: str, subject: str) -> None:
    assert subject_id(id_) == subject


def test_request_duration_is_the_age_of_its_id() -> None:
    assert duration_ms(f"req_{ulid(1_000_000, 5)}", 1_000_042) == 42
    assert duration_ms(f"req_{ulid(1_000_000, 5)}", 999_000) == 0
