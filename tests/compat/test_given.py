"""Recipients in one text with commas: names, quotes, and whatever else somebody may send."""

import pytest

from heliograph.compat.given import bare, read_mailboxes, split_mailboxes, unwrapped
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
    assert bare(split_mailboxes(text, "to")) == addresses


@pytest.mark.parametrize(
    "text", ["no", "a@b.test,,c@d.test", '"Ada <a@b.test>', "a@b.test; c@d.test", '\\"' * 100_000, '"' * 200_001]
)
def test_what_is_none_is_named_and_shortened(text: str) -> None:
    with pytest.raises(InvalidEmail) as refused:
        split_mailboxes(text, "to")
    assert refused.value.details and refused.value.details["address"] in text
    assert len(refused.value.details["address"]) <= 4096


def test_too_many_are_not_read() -> None:
    with pytest.raises(TooManyRecipients):
        split_mailboxes("a@b.test," * 1_000_000, "cc")
    with pytest.raises(TooManyRecipients):
        read_mailboxes(["a@b.test"] * 51, "cc")


def test_names_are_for_the_header() -> None:
    (one, other) = split_mailboxes(r'"Lovelace, Ada" <a@b.test>, Bob <c@d.test>', "to")
    assert (one.shown, other.shown) == ('"Lovelace, Ada" <a@b.test>', "Bob <c@d.test>")


def test_base64_in_lines() -> None:
    assert unwrapped("QUJD\r\nREVG\n") == "QUJDREVG"
