"""Other people's HTML and files, shown where they can do nothing: no script, no form, nothing loaded by itself."""

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
# What a browser may show by itself: it runs nothing in them. All else is saved.
SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "text/plain"})


Attached = File | AttachmentRecord
F = TypeVar("F", File, AttachmentRecord)


def framed(html: str, *, images: bool) -> Download:
    """Answer for a sandboxed iframe of our own; with `images`, those of the world are loaded."""
    policy = WITH_IMAGES if images else ALONE
    return Download(html.encode("utf-8", "replace"), "text/html; charset=utf-8", headers=_kept_alone(policy))


def with_pictures(html: str, files: Iterable[tuple[Attached, bytes]]) -> str:
    """Return the HTML with the pictures that came in the mail, as the frame can show them."""
    for file, octets in files:
        data = base64.b64encode(octets).decode()
        html = html.replace(f"cid:{file.content_id}", f"data:{file.content_type};base64,{data}", 1)
    return html


def pictures_in(files: Iterable[F]) -> list[F]:
    return [file for file in files if file.content_id and file.content_type in SHOWN_TYPES]


def listed(files: Sequence[F]) -> list[tuple[F, str, bool]]:
    """Return each file with its size for people, and whether a browser may show it."""
    return [(file, in_bytes(file.size), file.content_type in SHOWN_TYPES) for file in files]


def in_bytes(size: int) -> str:
    """Write the size of a file, for people."""
    if size < KIB:
        return f"{size} B"
    return f"{size / KIB:.1f} KB" if size < MIB else f"{size / MIB:.1f} MB"


def shown_or_saved(visit: Visit, file: Attached, body: bytes) -> Download:
    """Show a file where a browser runs nothing in it, else save it; whatever it calls itself, it is never a page."""
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
