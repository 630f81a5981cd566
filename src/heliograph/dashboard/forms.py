"""Bodies of POSTs: forms as browsers send them, with files where a page asks for one."""

from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import parse_qsl

from heliograph.rules.refusals import InvalidRequest

FIELDS_MAX = 1000


def read_form(content_type: str, body: bytes) -> tuple[dict[str, str], dict[str, bytes]]:
    """Fields and files."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return _multipart(content_type, body)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        raise InvalidRequest("The form cannot be read.") from None
    return _storable(dict(pairs)), {}


def _multipart(content_type: str, body: bytes) -> tuple[dict[str, str], dict[str, bytes]]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    mail = BytesParser(policy=HTTP).parsebytes(head + body)
    fields: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for part in mail.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            if part.get_filename() is None:
                fields[name] = content.decode("utf-8", "replace")
            else:
                files[name] = content
    return _storable(fields), files


def _storable(fields: dict[str, str]) -> dict[str, str]:
    if any("\0" in value for value in fields.values()):  # PostgreSQL has no place for it
        raise InvalidRequest("The form holds a character that cannot be stored.")
    return fields
