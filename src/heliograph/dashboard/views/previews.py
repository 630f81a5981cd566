"""Shows untrusted HTML and files safely: no scripts, no forms, and no remote content without consent."""

import base64
from collections.abc import Iterable, Sequence
from typing import TypeVar

from heliograph.dashboard.page_request import Download, Visit
from heliograph.domain.delivery.content import File
from heliograph.domain.limits import KIB, MIB
from heliograph.inbound.policy.inbound_mail import AttachmentRecord
from heliograph.web.request import Headers

ALONE = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox; frame-ancestors 'self'"
WITH_IMAGES = ALONE.replace("img-src data:", "img-src data: https: http:")
FILE_ALONE = "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'; sandbox"
# Types that browsers show without executing any content. All other types are downloaded.
SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "text/plain"})


Attached = File | AttachmentRecord
F = TypeVar("F", File, AttachmentRecord)


def framed(html: str, *, images: bool) -> Download:
    """Return untrusted HTML for a sandboxed iframe of our pages; `images` allows remote images."""
    policy = WITH_IMAGES if images else ALONE
    return Download(html.encode("utf-8", "replace"), "text/html; charset=utf-8", headers=_kept_alone(policy))


def with_pictures(html: str, files: Iterable[tuple[Attached, bytes]]) -> str:
    """Return the HTML with `cid:` references replaced by data URIs of the mail's inline images."""
    for file, octets in files:
        data = base64.b64encode(octets).decode()
        html = html.replace(f"cid:{file.content_id}", f"data:{file.content_type};base64,{data}", 1)
    return html


def pictures_in(files: Iterable[F]) -> list[F]:
    return [file for file in files if file.content_id and file.content_type in SHOWN_TYPES]


def listed(files: Sequence[F]) -> list[tuple[F, str, bool]]:
    """Return each file with its formatted size and whether a browser may show it."""
    return [(file, in_bytes(file.size), file.content_type in SHOWN_TYPES) for file in files]


def in_bytes(size: int) -> str:
    """Format the size of a file."""
    if size < KIB:
        return f"{size} B"
    return f"{size / KIB:.1f} KB" if size < MIB else f"{size / MIB:.1f} MB"


def shown_or_saved(visit: Visit, file: Attached, body: bytes) -> Download:
    """Return a file to be shown if its type is safe, otherwise to be downloaded; never as an HTML page."""
    headers = _kept_alone(FILE_ALONE)
    if file.content_type not in SHOWN_TYPES or "save" in visit.query:
        return Download(body, "application/octet-stream", file.filename or "attachment", headers=headers)
    charset = "; charset=utf-8" if file.content_type == "text/plain" else ""
    return Download(body, file.content_type + charset, headers=headers)


def _kept_alone(policy: str) -> Headers:
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-store"),
    ]
