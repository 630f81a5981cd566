"""Parses HTML form bodies: URL-encoded, or multipart on pages that accept files."""

from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from heliograph.domain.limits import KIB
from heliograph.domain.refusals import InvalidRequest, UnsupportedMediaType

FIELDS_MAX = 4000  # the platform's settings have four fields for each price
FORM_IN_THREAD = 16 * KIB  # larger forms are parsed in a thread, because percent-encoded bytes are slow to parse
TYPE_MAX = 200  # maximum characters of a content type, including its boundary
PARTS_MAX = 100
PART_HEADERS_MAX = 8
PART_HEADER_MAX = KIB  # maximum bytes of one header of a part
URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"

Form = tuple[dict[str, str], dict[str, bytes]]  # fields, files


def check_content_type(content_type: str, files: bool) -> None:
    """Refuse a content type that the page does not accept, before the body is read."""
    media_type = content_type.partition(";")[0].strip().lower()
    if len(content_type) > TYPE_MAX or media_type not in ("", URLENCODED, *([MULTIPART] if files else ())):
        raise UnsupportedMediaType("The form cannot be read: its content type is not one that this page sends.")


def read_form(content_type: str, body: bytes) -> Form:
    try:
        fields, files = _multipart(content_type, body) if "/form-data" in content_type.lower() else _urlencoded(body)
    except (FormParserError, ValueError):
        raise InvalidRequest("The form cannot be read.") from None
    if any("\0" in value for value in fields.values()):  # PostgreSQL cannot store null characters
        raise InvalidRequest("The form contains a null character, which cannot be stored.")
    return fields, files


def _urlencoded(body: bytes) -> Form:
    text = body.decode("ascii")
    return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)), {}


def _multipart(content_type: str, body: bytes) -> Form:
    parts = _Parts()
    parser = MultipartParser(
        parse_options_header(content_type)[1].get(b"boundary") or b"none",
        {
            "on_part_begin": parts.begin,
            "on_header_field": parts.header_name,
            "on_header_value": parts.header_value,
            "on_header_end": parts.header_end,
            "on_part_data": parts.data,
            "on_part_end": parts.end,
            "on_end": parts.finish,
        },
        max_header_count=PART_HEADERS_MAX,
        max_header_size=PART_HEADER_MAX,
    )
    parser.write(body)
    if not parts.is_complete:
        raise ValueError("the body is truncated")
    return parts.fields, parts.files


class _Parts:
    """Collects form fields and files; its methods are callbacks of the multipart parser."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.is_complete = False
        self._count = 0

    def begin(self) -> None:
        self._count += 1
        if self._count > PARTS_MAX:
            raise ValueError("too many parts")
        self._content: list[bytes] = []
        self._names: dict[bytes, bytes] = {}
        self._header, self._value = b"", b""

    def header_name(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end].lower()

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def header_end(self) -> None:
        if self._header == b"content-disposition":
            self._names = parse_options_header(self._value)[1]
        self._header, self._value = b"", b""

    def data(self, data: bytes, start: int, end: int) -> None:
        self._content.append(data[start:end])

    def end(self) -> None:
        name, content = self._names.get(b"name", b"").decode("utf-8", "replace"), b"".join(self._content)
        if b"filename" in self._names:
            self.files[name] = content
        else:
            self.fields[name] = content.decode("utf-8", "replace")

    def finish(self) -> None:
        self.is_complete = True
