"""A mail that came in, as its event tells it in part, and as a read gives it whole."""

import pytest

from heliograph.rules.mail.incoming import (
    RECORD_MAX,
    Authentication,
    read_incoming,
    texts_of,
    to_record,
    told,
    with_texts,
)

PART = "--b\r\nContent-Type: text/{0}; name={1}\r\nContent-Disposition: attachment\r\nContent-ID: <{0}>\r\n\r\nx\r\n"


def test_what_an_event_has_no_room_for_is_marked_and_read_whole() -> None:
    parts = "".join(PART.format("x" * 1500, f"{number:0>190}") for number in range(100))
    mail = f"From: a@example.com\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n{parts}--b--\r\n"
    read = read_incoming(mail.encode(), sender="a@example.com", recipients=[])
    whole = to_record("rcv_1", read, [], None, Authentication())
    short = told(whole)
    assert len(whole.attachments) == 100 > len(short.attachments)
    assert (whole.truncated, short.truncated) == (False, True)
    assert sum(len(one.content_type) for one in short.attachments) < RECORD_MAX
    assert with_texts(short, texts_of(whole)) == whole


@pytest.mark.parametrize(
    ("parts", "people", "is_cut"), [(100, 100, False), (101, 1, True), (300, 1, True), (1, 101, True)]
)
def test_what_is_beyond_the_limits_is_marked(parts: int, people: int, is_cut: bool) -> None:
    files = "".join(PART.format("plain", number) for number in range(parts))
    to = ", ".join(f"a{number}@example.com" for number in range(people))
    mail = f"From: a@example.com\r\nTo: {to}\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n{files}--b--\r\n"
    read = read_incoming(mail.encode(), sender="a@example.com", recipients=[])
    assert (read.is_cut, len(read.attachments), len(read.to)) == (is_cut, min(parts, 100), min(people, 100))
