"""Unsubscription from a category of a team's emails: categories, and signed links that need no stored state.

A link never expires, because recipients may follow it at any time.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Collection, Iterable
from typing import Literal, get_args

import msgspec

from heliograph.domain.limits import DOMAIN_MAX, KIB, LOCAL_PART_MAX
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.text import quoted

CATEGORY = re.compile(r"[a-z0-9_-]{1,32}")
CATEGORY_MAX = 32  # characters
CATEGORIES_MAX = 100
VARIABLE = "unsubscribe_url"  # placeholder in templates and layouts, without braces
PLACEHOLDER = f"{{{{{VARIABLE}}}}}"
LINK_PATH = "/unsubscribe/"
TOKEN_MAX = 2 * KIB  # characters
_TAG_BYTES = 18

UnsubscribeReason = Literal["link", "mail", "manual"]
UNSUBSCRIBE_REASONS: tuple[UnsubscribeReason, ...] = get_args(UnsubscribeReason)


class UnsubscribeLink(msgspec.Struct, frozen=True, array_like=True):
    """Content of an unsubscribe link; its field order is part of the format of links already sent."""

    team: str
    address: str  # normalised
    category: str
    locale: str = ""  # language of the page; empty for the default


_decoder = msgspec.json.Decoder(UnsubscribeLink)


def check_category(category: str, categories: Collection[str]) -> None:
    """Raise InvalidRequest unless the category is one of the team's."""
    if category not in categories:
        raise InvalidRequest(
            f"{quoted(category)} is not a category of the team ({', '.join(categories) or 'it has none'}). Use one of "
            "them, or add it to the team's categories.",
            param="category",
        )


def sign_link(key: bytes, link: UnsubscribeLink) -> str:
    """Return the signed token of an unsubscribe link."""
    payload = msgspec.json.encode(link)
    return base64.urlsafe_b64encode(_tag(key, payload) + payload).decode().rstrip("=")


def parse_link(key: bytes, token: str) -> UnsubscribeLink | None:
    """Return the content of an unsubscribe link; None if the signature is invalid."""
    if len(token) > TOKEN_MAX or not token.isascii():
        return None
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        return None
    tag, payload = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
    return _decoder.decode(payload) if hmac.compare_digest(tag, _tag(key, payload)) else None


def link_url(base_url: str, token: str) -> str:
    return f"{base_url}{LINK_PATH}{token}"


def longest_url(base_url: str, team: str, locales: Iterable[str]) -> str:
    """Return a URL with the maximum length of the unsubscribe URLs of a team's emails in these languages."""
    address = "a" * (LOCAL_PART_MAX + len("@") + DOMAIN_MAX)
    locale = max(locales, key=len, default="")
    link = UnsubscribeLink(team=team, address=address, category="a" * CATEGORY_MAX, locale=locale)
    return link_url(base_url, sign_link(b"", link))


def insert_url(text: str | None, url: str) -> str | None:
    """Replace the placeholder of the unsubscribe URL in an email without a template."""
    return text.replace(PLACEHOLDER, url) if text else text


def _tag(key: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, b"unsubscribe\0" + payload, "sha256")[:_TAG_BYTES]
