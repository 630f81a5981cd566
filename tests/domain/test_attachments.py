from base64 import b64encode
from typing import Any

import pytest

from heliograph.domain.limits import MIB
from heliograph.domain.mail.attachments import ALLOWED_TYPES, TYPE_BY_EXTENSION, parse_attachments, total_content_length
from heliograph.domain.refusals import (
    AttachmentsTooLarge,
    AttachmentTooLarge,
    InvalidAttachment,
    InvalidRequest,
    Refusal,
    TooManyAttachments,
    UnsupportedAttachmentType,
)

# Encoded once, because encoding would take most of the time of the size tests.
TEN_MIB = b64encode(bytes(10 * MIB)).decode()
OVER_TEN_MIB = b64encode(bytes(10 * MIB + 1)).decode()
FIVE_MIB = b64encode(bytes(5 * MIB)).decode()

MISSING = object()


def item(**fields: object) -> dict[str, Any]:
    full = {"filename": "a.txt", "content": "QQ==", "content_type": "text/plain"} | fields
    return {name: value for name, value in full.items() if value is not MISSING}


BAD_FORM = item(content="?")
BAD_TYPE = item(content_type="text/html")
TOO_LARGE = item(content=OVER_TEN_MIB)


@pytest.mark.parametrize(
    ("items", "size"), [([], 0), ([item(), item(content="A" * 8)], 12), (["x", None, {}, item(content=3)], 0)]
)
def test_attachments_unchecked_have_a_total_length(items: list[Any], size: int) -> None:
    assert total_content_length(items) == size


def refusal_of(items: list[Any]) -> Refusal:
    with pytest.raises(Refusal) as refused:
        parse_attachments(items)
    return refused.value


def test_attachments_valid_are_parsed() -> None:
    first, second = parse_attachments([item(), item(filename="b.pdf", content_type="application/pdf", content="QUI=")])
    assert (first.filename, first.content_type, first.content) == ("a.txt", "text/plain", b"A")
    assert (second.filename, second.content_type, second.content) == ("b.pdf", "application/pdf", b"AB")


def test_attachments_empty_list_is_parsed_to_nothing() -> None:
    assert parse_attachments([]) == ()


@pytest.mark.parametrize(
    ("items", "param"),
    [
        (["file"], "attachments[0]"),
        ([None], "attachments[0]"),
        ([item(), [item()]], "attachments[1]"),
        ([item(foo=1)], "attachments[0].foo"),
        ([item(), item(url="http://x.io")], "attachments[1].url"),
        ([item(filename=1)], "attachments[0].filename"),
        ([item(content=1)], "attachments[0].content"),
        ([item(), item(content_type=[])], "attachments[1].content_type"),
        ([item(content_id={})], "attachments[0].content_id"),
        ([item()] * 21 + [1], "attachments[21]"),  # field types are checked first
    ],
)
def test_attachments_of_wrong_type_are_an_invalid_request(items: list[Any], param: str) -> None:
    refused = refusal_of(items)
    assert (type(refused), refused.param) == (InvalidRequest, param)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"filename": MISSING}, "filename"),
        ({"filename": None}, "filename"),
        ({"filename": ""}, "filename"),
        ({"content": MISSING}, "content"),
        ({"content": None}, "content"),
        ({"content_id": ""}, "content_id"),
        ({"content_id": "a b"}, "content_id"),
        ({"content_id": "x" * 129}, "content_id"),
        ({"content": "QQ"}, "content"),  # no padding
        ({"content": "QQ="}, "content"),
        ({"content": "QQ==="}, "content"),
        ({"content": "Q"}, "content"),
        ({"content": "===="}, "content"),
        ({"content": "QQ==QQ=="}, "content"),
        ({"content": "QQ==\n"}, "content"),
        ({"content": " QQ=="}, "content"),
        ({"content": "QU\r\nJD"}, "content"),
        ({"content": "-_-_"}, "content"),  # the URL alphabet
        ({"content": "QUJ?"}, "content"),
        ({"content": "QUJé"}, "content"),
        ({"content": "QR=="}, "content"),  # unused bits that are not zero
        ({"content": "QUJ="}, "content"),
        ({"content": "data:text/plain;base64,QQ=="}, "content"),
    ],
)
def test_attachment_with_an_invalid_field_names_the_field(fields: dict[str, object], part: str) -> None:
    refused = refusal_of([item(), item(**fields)])
    assert (type(refused), refused.param) == (InvalidAttachment, f"attachments[1].{part}")
    assert f"attachments[1].{part}" in refused.message


@pytest.mark.parametrize("content", ["", "QQ==", "QUI=", "QUJD", "+/+/"])
def test_attachment_strict_base64_is_accepted(content: str) -> None:
    [attachment] = parse_attachments([item(content=content)])
    assert b64encode(attachment.content).decode() == content


def test_allowed_types_are_those_of_the_spec() -> None:
    assert len(ALLOWED_TYPES) == 18
    for allowed in ALLOWED_TYPES:
        [attachment] = parse_attachments([item(content_type=allowed)])
        assert attachment.content_type == allowed


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("Application/PDF", "application/pdf"),
        ("text/csv; charset=UTF-8", "text/csv; charset=UTF-8"),
        ('text/calendar;METHOD=REQUEST; charset="utf-8"', "text/calendar; method=REQUEST; charset=utf-8"),
        ("image/png ; name=a.png", "image/png"),
        ("text/plain; charset=a\r\nBcc: b@x.io", "text/plain"),
    ],
)
def test_types_are_compared_without_case_and_parameters(given: str, normal: str) -> None:
    [attachment] = parse_attachments([item(content_type=given)])
    assert attachment.content_type == normal


@pytest.mark.parametrize(
    "bad", ["text/html", "application/x-msdownload", "pdf", "text/plain\r\nX: y", "; charset=a", "*/*", ""]
)
def test_attachment_of_an_unsupported_type_is_refused(bad: str) -> None:
    refused = refusal_of([item(), item(content_type=bad)])
    assert (type(refused), refused.param) == (UnsupportedAttachmentType, "attachments[1].content_type")


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("/etc/passwd", "passwd"),
        ("../../x.txt", "x.txt"),
        ("C:\\Users\\ada\\x.txt", "x.txt"),
        ("a\\b/c.txt", "c.txt"),
        ("a\r\nb\x00.txt", "ab.txt"),
        ("invoice\u202efdp.exe", "invoicefdp.exe"),
        ("\u2066a\u2069.txt", "a.txt"),
        (" a b.txt ", "a b.txt"),
        ("naïve 東京.pdf", "naïve 東京.pdf"),
        ("dir/", "attachment"),
        ("..", "attachment"),
        ("\n", "attachment"),
        ("  ", "attachment"),
    ],
)
def test_attachment_filename_is_sanitized(given: str, safe: str) -> None:
    [attachment] = parse_attachments([item(filename=given)])
    assert attachment.filename == safe


def test_attachment_count_limit_is_inclusive() -> None:
    assert len(parse_attachments([item()] * 20)) == 20
    assert type(refusal_of([item()] * 21)) is TooManyAttachments


def test_attachment_size_limit_is_inclusive() -> None:
    assert len(parse_attachments([item(content=TEN_MIB)])[0].content) == 10 * MIB
    refused = refusal_of([item(), TOO_LARGE])
    assert (type(refused), refused.param) == (AttachmentTooLarge, "attachments[1].content")


def test_attachment_total_size_limit_is_inclusive() -> None:
    full = [item(content=TEN_MIB), item(content=TEN_MIB), item(content=FIVE_MIB)]
    assert len(parse_attachments(full)) == 3
    refused = refusal_of([*full, item()])
    assert (type(refused), refused.param) == (AttachmentsTooLarge, "attachments")


@pytest.mark.parametrize(
    ("items", "first"),
    [
        ([BAD_FORM] * 21, TooManyAttachments),
        ([BAD_TYPE, BAD_FORM], InvalidAttachment),
        ([TOO_LARGE, BAD_TYPE], UnsupportedAttachmentType),
        ([TOO_LARGE, TOO_LARGE, TOO_LARGE], AttachmentTooLarge),
    ],
)
def test_attachment_checks_run_in_the_documented_order(items: list[Any], first: type[Refusal]) -> None:
    assert type(refusal_of(items)) is first


@pytest.mark.parametrize(
    ("filename", "kind"),
    [
        ("a.PDF", "application/pdf"),
        ("b.tar.zip", "application/zip"),
        ("c.jpeg", "image/jpeg"),
        ("d.ics", "text/calendar"),
    ],
)
def test_attachment_type_is_derived_from_the_file_extension(filename: str, kind: str) -> None:
    [attachment] = parse_attachments([item(filename=filename, content_type=MISSING)])
    assert attachment.content_type == kind


@pytest.mark.parametrize("filename", ["a", "a.exe", "pdf.", "a.html", "pdf", "TXT", ".csv"])
def test_attachment_with_an_unknown_extension_has_no_type(filename: str) -> None:
    assert isinstance(refusal_of([item(filename=filename, content_type=MISSING)]), UnsupportedAttachmentType)


def test_every_known_extension_maps_to_an_allowed_type() -> None:
    assert set(TYPE_BY_EXTENSION.values()) == ALLOWED_TYPES - {"application/x-zip-compressed"}


def test_attachment_content_ids_must_be_unique() -> None:
    entry, two = parse_attachments([item(content_id="logo@acme"), item(content_id="LOGO@acme")])
    assert (entry.content_id, two.content_id) == ("logo@acme", "LOGO@acme")
    refused = refusal_of([item(content_id="logo"), item(), item(content_id="logo")])
    assert (type(refused), refused.param) == (InvalidAttachment, "attachments[2].content_id")
    assert isinstance(refusal_of([item(content_id=5)]), InvalidRequest)


XML = ("application/xml", "audio/mpeg")


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"filename": "invoice.xml", "content_type": "application/xml"}, "application/xml"),
        ({"filename": "invoice.XML", "content_type": MISSING}, "application/xml"),
        ({"filename": "said.mp3", "content_type": MISSING}, "audio/mpeg"),
        ({"filename": "a.pdf", "content_type": MISSING}, "application/pdf"),
    ],
)
def test_attachment_types_added_by_the_operator_are_accepted(given: dict[str, Any], kind: str) -> None:
    [attachment] = parse_attachments([item(**given)], XML)
    assert attachment.content_type == kind


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"content_type": "application/xml"}, "attachments[0].content_type of 'i.xml' is 'application/xml', which"),
        ({"content_type": MISSING}, "attachments[0].content_type of 'i.xml' is missing, and the extension is unknown"),
    ],
)
def test_refused_attachment_type_names_the_file_and_who_can_allow_it(given: dict[str, Any], said: str) -> None:
    refusal = refusal_of([item(filename="i.xml", **given)])
    assert refusal.message.startswith(said)
    assert (
        "ask an operator to allow this type (setting attachment_types of the team or the platform)" in refusal.message
    )
