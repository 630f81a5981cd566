"""The id that the request log keeps of a request."""

import pytest

from heliograph.rules.ids import ulid
from heliograph.rules.request_log import id_of, subject_of, took_ms


@pytest.mark.parametrize(
    ("body", "asked", "subject"),
    [
        (b'{"id":"eml_01KA0000000000000000000000","status":"queued"}', "", "eml_01KA0000000000000000000000"),
        (b'{"id":"ada@example.com"}', "", ""),
        (b'{"id":7}', "eml_01KA0000000000000000000000", "eml_01KA0000000000000000000000"),
        (b'{"status":"approved"}', "vrf_01KA0000000000000000000000", "vrf_01KA0000000000000000000000"),
        (b"[]", "<script>", ""),
        (b"", "../../x", ""),
    ],
)
def test_an_id_and_nothing_else_that_a_caller_wrote(body: bytes, asked: str, subject: str) -> None:
    assert subject_of(body, asked) == subject


def test_a_request_took_as_long_as_its_id_is_old() -> None:
    assert took_ms(f"req_{ulid(1_000_000, 5)}", 1_000_042) == 42
    assert took_ms(f"req_{ulid(1_000_000, 5)}", 999_000) == 0


def test_an_answer_of_any_length_has_its_id() -> None:
    assert id_of(b'{"to":"%b","id":"eml_1"}' % (b"a" * 5000)) == "eml_1"
