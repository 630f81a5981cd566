"""Recipients in one text with commas: names, quotes, and whatever else somebody may send."""

import pytest

from heliograph.compat.given import bare_addresses, split_addresses, unwrapped
from heliograph.rules.refusals import InvalidEmail, TooManyRecipients


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        (None, []),
        (" , ", []),
        ("a@b.test", ["a@b.test"]),
        ("Ada <a@b.test>, c@d.test,", ["a@b.test", "c@d.test"]),
        (r'"Lovelace, \"Ada\"" <a@b.test>,c@d.test', ["a@b.test", "c@d.test"]),
    ],
)
def test_addresses(text: str | None, addresses: list[str]) -> None:
    assert split_addresses(text, "to") == addresses


@pytest.mark.parametrize(
    "text", ["no", "a@b.test,,c@d.test", '"Ada <a@b.test>', "a@b.test; c@d.test", '\\"' * 100_000, '"' * 200_001]
)
def test_what_is_none_is_named_and_shortened(text: str) -> None:
    with pytest.raises(InvalidEmail) as refused:
        split_addresses(text, "to")
    assert refused.value.details and refused.value.details["address"] in text
    assert len(refused.value.details["address"]) <= 4096


def test_too_many_are_not_read() -> None:
    with pytest.raises(TooManyRecipients):
        split_addresses("a@b.test," * 1_000_000, "cc")
    with pytest.raises(TooManyRecipients):
        bare_addresses(["a@b.test"] * 51, "cc")


def test_base64_in_lines() -> None:
    assert unwrapped("QUJD\r\nREVG\n") == "QUJDREVG"
