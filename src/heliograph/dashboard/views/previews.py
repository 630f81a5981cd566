"""Other people's HTML, shown where it can do nothing: no script, no form, and nothing loaded unless it is asked for."""

from heliograph.dashboard.visit import Download

ALONE = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox; frame-ancestors 'self'"
WITH_IMAGES = ALONE.replace("img-src data:", "img-src data: https: http:")


def framed(html: str, *, images: bool = False) -> Download:
    """Answer for a sandboxed iframe of our own; with `images`, those of the world are loaded."""
    return Download(
        html.encode("utf-8", "replace"),
        "text/html; charset=utf-8",
        headers=[
            (b"content-security-policy", (WITH_IMAGES if images else ALONE).encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cache-control", b"no-store"),
        ],
    )
