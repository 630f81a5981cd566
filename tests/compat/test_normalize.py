"""Recipients in one text with commas: names, quotes, and invalid input."""

import pytest

from heliograph.compat.normalize import (
    addresses_of,
    read_mailboxes,
    split_mailboxes,
    unwrap_base64,
    with_client_field_names,
)
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
def test_comma_separated_addresses_are_split(text: str | None, addresses: list[str]) -> None:
    assert addresses_of(split_mailboxes(text, "to")) == addresses


@pytest.mark.parametrize(
    "text", ["no", "a@b.test,,c@d.test", '"Ada <a@b.test>', "a@b.test; c@d.test", '\\"' * 100_000, '"' * 200_001]
)
def test_an_invalid_address_is_quoted_shortened(text: str) -> None:
    with pytest.raises(InvalidEmail) as refused:
        split_mailboxes(text, "to")
    assert refused.value.details and refused.value.details["address"] in text
    assert len(refused.value.details["address"]) <= 4096


def test_parsing_stops_at_the_recipient_limit() -> None:
    with pytest.raises(TooManyRecipients):
        split_mailboxes("a@b.test," * 1_000_000, "cc")
    with pytest.raises(TooManyRecipients):
        read_mailboxes(["a@b.test"] * 51, "cc")


def test_names_are_for_the_header() -> None:
    (first, other) = split_mailboxes(r'"Lovelace, Ada" <a@b.test>, Bob <c@d.test>', "to")
    assert (first.header, other.header) == ('"Lovelace, Ada" <a@b.test>', "Bob <c@d.test>")


def test_wrapped_base64_is_unwrapped() -> None:
    assert unwrap_base64("QUJD\r\nREVG\n") == "QUJDREVG"


@pytest.mark.parametrize(
    ("param", "message", "told"),
    [
        ("to", "to has no address. Send it to one.", "To has no address. Send it to one."),
        ("messages[1].to", "to 'x' is none", "To 'x' is none"),
        ("attachments[0].content_type", "attachments[0].content_type of 'a' is", "Attachments[0].Type of 'a' is"),
        ("html", "Both 'html' and 'text' are missing.", "Both 'Html' and 'text' are missing."),
        ("x", "Add a template_id to it, or html.", "Add a Sid to it, or html."),
        (None, "Nothing to say.", "Nothing to say."),
        ("variables.x", "variables.x is", "model.variables.x is"),
        ("model.variables", "model.variables: expected", "model.variables: expected"),  # as the client wrote it
    ],
)
def test_field_names_are_those_of_the_client_api(param: str | None, message: str, told: str) -> None:
    names = {"to": "To", "attachments": "Attachments", "content_type": "Type", "html": "Html", "template_id": "Sid"}
    names["variables"] = "model.variables"
    assert with_client_field_names(InvalidRequest(message, param=param), names) == told
