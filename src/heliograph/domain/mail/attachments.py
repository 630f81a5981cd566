"""Attachments of an email: fields, strict base64, allowed types and sizes (spec 2.2 and 8)."""

import re
from collections.abc import Collection
from mimetypes import MimeTypes
from typing import Any

import msgspec
import pybase64

from heliograph.domain.limits import (
    ATTACHMENT_MAX,
    ATTACHMENTS_MAX,
    ATTACHMENTS_TOTAL_MAX,
    FILENAME_MAX,
    MIB,
)
from heliograph.domain.refusals import (
    AttachmentsTooLarge,
    AttachmentTooLarge,
    InvalidAttachment,
    InvalidRequest,
    TooManyAttachments,
    UnsupportedAttachmentType,
)
from heliograph.domain.setup.records import Platform, Team
from heliograph.domain.text import CONTROL_CHARACTER, quoted

_OFFICE = "application/vnd.openxmlformats-officedocument."
# Allowed types (spec 8) by filename extension, also for attachments without a content type.
TYPE_BY_EXTENSION = {
    "pdf": "application/pdf",
    "doc": "application/msword",
    "docx": f"{_OFFICE}wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": f"{_OFFICE}spreadsheetml.sheet",
    "ppt": "application/vnd.ms-powerpoint",
    "pptx": f"{_OFFICE}presentationml.presentation",
    "json": "application/json",
    "csv": "text/csv",
    "txt": "text/plain",
    "ics": "text/calendar",
    "zip": "application/zip",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "svg": "image/svg+xml",
}
ALLOWED_TYPES = frozenset({*TYPE_BY_EXTENSION.values(), "application/x-zip-compressed"})
TYPE_MAX = 1000  # characters of a content type that are examined
FIELDS = ("filename", "content", "content_type", "content_id")
# Extension with dot → type; Python's built-in table, independent of the machine
_TYPE_BY_DOTTED_EXTENSION = MimeTypes().types_map[True]
# Types that an operator may allow. Embedded mails (message/…) are excluded: receivers would parse their parts as ours.
EXTRA_TYPE_PATTERN = re.compile(
    r"(?!multipart/|message/)[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}"
)
_CONTENT_ID = re.compile("[A-Za-z0-9._@-]{1,128}")

# Parameters that affect how a reader interprets the file; all others are dropped.
_KEPT_PARAMETER = re.compile(r';\s*(charset|method)=("?)([A-Za-z0-9._:+-]{1,40})\2\s*(?=;|\Z)', re.IGNORECASE)


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    filename: str
    content_type: str  # lower-case, with charset and method if given
    content: bytes
    content_id: str | None = None


def guess_type(filename: str, extra_types: Collection[str] = ()) -> str:
    """Return the content type for the filename's extension; empty if the extension is missing or unknown.

    `extra_types`: content types allowed by an operator.
    """
    name, _, extension = filename.rpartition(".")
    extension = extension.lower() if name else ""
    matching = (
        kind
        for kind in extra_types
        if kind == _TYPE_BY_DOTTED_EXTENSION.get(f".{extension}") or kind.partition("/")[2] == extension
    )
    return TYPE_BY_EXTENSION.get(extension) or next(matching, "")


def configured_extra_types(platform: Platform, team: Team) -> tuple[str, ...]:
    """Return the content types that an operator allows in addition to those of the spec."""
    return platform.attachment_types + team.record.attachment_types


def total_content_length(items: list[Any]) -> int:
    """Return the files' total content length in characters. Items are not validated yet; invalid ones are skipped."""
    contents = [item.get("content") for item in items if isinstance(item, dict)]
    return sum(len(content) for content in contents if isinstance(content, str))


def check_items(items: list[Any]) -> None:
    """Reject attachments that are not objects, have unknown fields, or have values that are not strings."""
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            raise InvalidRequest(f"attachments[{i}] is not an object.", param=f"attachments[{i}]")
        for field, value in item.items():
            if field not in FIELDS:
                raise InvalidRequest(
                    f"attachments[{i}] has no field {quoted(field)}. Send {', '.join(FIELDS)}.",
                    param=f"attachments[{i}].{field}",
                )
            if not isinstance(value, str | None):
                raise InvalidRequest(f"attachments[{i}].{field} is not a string.", param=f"attachments[{i}].{field}")


def parse_attachments(items: list[Any], extra_types: Collection[str] = ()) -> tuple[Attachment, ...]:
    """Parse and validate the attachments. `extra_types`: content types allowed by an operator."""
    if not items:
        return ()
    check_items(items)
    if len(items) > ATTACHMENTS_MAX:
        raise TooManyAttachments(
            f"There are {len(items)} attachments; the maximum is {ATTACHMENTS_MAX}. {TooManyAttachments.fix}",
            param="attachments",
        )
    attachments = tuple(_parse_attachment(item, f"attachments[{i}]", extra_types) for i, item in enumerate(items))
    ids = [attachment.content_id for attachment in attachments]
    for i, content_id in enumerate(ids):
        if content_id is not None and content_id in ids[:i]:
            raise InvalidAttachment(
                f"content_id {quoted(content_id)} is used twice. {InvalidAttachment.fix}",
                param=f"attachments[{i}].content_id",
            )
    for i, attachment in enumerate(attachments):
        check_type(attachment.filename, attachment.content_type, f"attachments[{i}].content_type", extra_types)
    for i, attachment in enumerate(attachments):
        _check_size(attachment, f"attachments[{i}].content")
    total = sum(len(attachment.content) for attachment in attachments)
    if total > ATTACHMENTS_TOTAL_MAX:
        raise AttachmentsTooLarge(
            f"The attachments have {total} bytes in total; the maximum is {ATTACHMENTS_TOTAL_MAX} "
            f"({ATTACHMENTS_TOTAL_MAX // MIB} MiB). {AttachmentsTooLarge.fix}",
            param="attachments",
        )
    return attachments


def _parse_attachment(item: dict[str, Any], path: str, extra_types: Collection[str]) -> Attachment:
    for field, missing_values in (("filename", (None, "")), ("content", (None,))):  # an empty file is allowed
        if (value := item.get(field)) in missing_values:
            problem = "is missing" if value is None else "is empty"
            raise InvalidAttachment(f"{path}.{field} {problem}. {InvalidAttachment.fix}", param=f"{path}.{field}")
    content = _decode_strict_base64(item["content"])
    if content is None:
        raise InvalidAttachment(
            f"{path}.content of {quoted(item['filename'])} is not valid base64. {InvalidAttachment.fix}",
            param=f"{path}.content",
        )
    content_id = item.get("content_id")
    if content_id is not None and not _CONTENT_ID.fullmatch(content_id):
        raise InvalidAttachment(
            f"{path}.content_id {quoted(content_id)} is malformed. {InvalidAttachment.fix}",
            param=f"{path}.content_id",
        )
    filename = _safe_filename(item["filename"])
    declared_type = item.get("content_type")
    content_type = guess_type(filename, extra_types) if declared_type is None else _normalize_type(declared_type)
    return Attachment(filename=filename, content_type=content_type, content=content, content_id=content_id)


def _decode_strict_base64(text: str) -> bytes | None:
    try:
        content = pybase64.b64decode(text, validate=True)
    except ValueError:
        return None
    remainder = len(content) % 3
    # The decoder ignores the unused bits of the last character; RFC 4648 requires zero bits.
    if remainder and pybase64.b64encode(content[-remainder:]).decode() != text[-4:]:
        return None
    return content


def _safe_filename(text: str) -> str:
    name = CONTROL_CHARACTER.sub("", re.split(r"[/\\]", text[-FILENAME_MAX:])[-1]).strip()
    return name if name.strip(".") else "attachment"


def _normalize_type(text: str) -> str:
    parameters = "".join(f"; {match[1].lower()}={match[3]}" for match in _KEPT_PARAMETER.finditer(text[:TYPE_MAX]))
    return text[:TYPE_MAX].partition(";")[0].strip().lower() + parameters


def check_type(filename: str, content_type: str, param: str, extra_types: Collection[str]) -> None:
    bare_type = content_type.partition(";")[0]
    if bare_type not in ALLOWED_TYPES and bare_type not in extra_types:
        problem = (
            f"is {quoted(bare_type)}, which is not allowed" if bare_type else "is missing, and the extension is unknown"
        )
        raise UnsupportedAttachmentType(
            f"{param} of {quoted(filename)} {problem}. {UnsupportedAttachmentType.fix}",
            param=param,
        )


def _check_size(attachment: Attachment, param: str) -> None:
    size = len(attachment.content)
    if size > ATTACHMENT_MAX:
        raise AttachmentTooLarge(
            f"{quoted(attachment.filename)} has {size} bytes; the maximum for one attachment is {ATTACHMENT_MAX} "
            f"({ATTACHMENT_MAX // MIB} MiB). {AttachmentTooLarge.fix}",
            param=param,
        )
