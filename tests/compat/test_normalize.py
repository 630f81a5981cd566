"""Recipients in one text with commas: names, quotes, and whatever else somebody may send."""

import pytest

from heliograph.compat.normalize import bare, read_mailboxes, split_mailboxes, unwrapped, worded
from heliograph.domain.refusals import InvalidEmail, InvalidRequest, TooManyRecipients


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


@pytest.mark.parametrize(
    ("param", "message", "told"),
    [
        ("to", "to has no address. Send it to one.", "To has no address. Send it to one."),
        ("messages[1].to", "to 'x' is none", "To 'x' is none"),
        ("attachments[0].content_type", "attachments[0].content_type of 'a' is", "Attachments[0].Type of 'a' is"),
        ("html", "Both 'html' and 'text' are missing.", "Both 'Html' and 'text' are missing."),
        ("x", "Add a template_id to it, or html.", "Add a Sid to it, or html."),
        (None, "Nothing to say.", "Nothing to say."),
    ],
)
def test_names_of_fields_are_the_shapes_own(param: str | None, message: str, told: str) -> None:
    names = {"to": "To", "attachments": "Attachments", "content_type": "Type", "html": "Html", "template_id": "Sid"}
    assert worded(InvalidRequest(message, param=param), names) == told
