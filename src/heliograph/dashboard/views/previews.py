"""Shows untrusted HTML and files safely: no scripts, no forms, and no remote content without consent."""

import base64
from collections.abc import Iterable, Sequence
from typing import TypeVar

from heliograph.dashboard.page_request import Download, PageRequest
from heliograph.domain.delivery.content import File
from heliograph.domain.limits import KIB, MIB
from heliograph.inbound.policy.inbound_mail import AttachmentRecord
from heliograph.web.request import Headers

HTML_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox; frame-ancestors 'self'"
HTML_POLICY_WITH_IMAGES = HTML_POLICY.replace("img-src data:", "img-src data: https: http:")
FILE_POLICY = "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'; sandbox"
# types that browsers show without running any content; all others are downloaded
SAFE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "text/plain"})


AttachedFile = File | AttachmentRecord
FileT = TypeVar("FileT", File, AttachmentRecord)


def html_download(html: str, *, allow_remote_images: bool) -> Download:
    """Return untrusted HTML for a sandboxed iframe; `allow_remote_images` lets it load remote images."""
    policy = HTML_POLICY_WITH_IMAGES if allow_remote_images else HTML_POLICY
    return Download(html.encode("utf-8", "replace"), "text/html; charset=utf-8", headers=_isolation_headers(policy))


def embed_images(html: str, files: Iterable[tuple[AttachedFile, bytes]]) -> str:
    """Return the HTML with `cid:` references replaced by data URIs of the mail's inline images."""
    for file, content in files:
        data = base64.b64encode(content).decode()
        html = html.replace(f"cid:{file.content_id}", f"data:{file.content_type};base64,{data}", 1)
    return html


def find_inline_images(files: Iterable[FileT]) -> list[FileT]:
    return [file for file in files if file.content_id and file.content_type in SAFE_TYPES]


def file_rows(files: Sequence[FileT]) -> list[tuple[FileT, str, bool]]:
    """Return each file with its formatted size and whether a browser may show it."""
    return [(file, format_size(file.size), file.content_type in SAFE_TYPES) for file in files]


def format_size(size: int) -> str:
    if size < KIB:
        return f"{size} B"
    return f"{size / KIB:.1f} KB" if size < MIB else f"{size / MIB:.1f} MB"


def file_download(request: PageRequest, file: AttachedFile, body: bytes) -> Download:
    """Return a file that is shown if its type is safe, otherwise downloaded; never as an HTML page."""
    headers = _isolation_headers(FILE_POLICY)
    if file.content_type not in SAFE_TYPES or "save" in request.query:
        return Download(body, "application/octet-stream", file.filename or "attachment", headers=headers)
    charset = "; charset=utf-8" if file.content_type == "text/plain" else ""
    return Download(body, file.content_type + charset, headers=headers)


def _isolation_headers(policy: str) -> Headers:
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-store"),
    ]
