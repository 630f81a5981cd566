"""Parsers for single values of a setup file: allowed format, parsed value, and error text."""

import ipaddress
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from heliograph.domain.accounts.portal import read_origin
from heliograph.domain.delivery.magic_recipients import is_magic_email
from heliograph.domain.mail.address import Address, normalize_domain, parse_address
from heliograph.domain.mail.attachments import EXTRA_TYPE_PATTERN
from heliograph.domain.mail.suppression_file import MAGIC_ADDRESS_ERROR
from heliograph.domain.mail.unsubscribe import CATEGORIES_MAX, CATEGORY
from heliograph.domain.phones.phone import COUNTRIES, parse_phone
from heliograph.domain.refusals import InvalidPhone
from heliograph.domain.sending.pricing import parse_money
from heliograph.domain.setup.keys import public_id
from heliograph.domain.text import check_line, quoted
from heliograph.domain.validation import InvalidValue, convert_at, parse_with
from heliograph.templates.policy.locales import normalize_tag
from heliograph.templates.policy.mjml import compile_mjml
from heliograph.webhooks.policy.webhook_url import parse_host, parse_target, split_login

ORIGINS_MAX = 50  # every page of a portal sends all origins in a header


def read_domain(text: str) -> str:
    name = normalize_domain(text)
    if name is None:
        raise ValueError(f"expected a domain such as acme.test, got {quoted(text)}")
    return name


def read_email(text: str) -> Address:
    address = parse_address(text)
    if address is None:
        raise ValueError(f"expected an email address, got {quoted(text)}")
    return address


def read_inbound(text: str) -> str:
    """Parse an inbound address, or `*@domain`, into its normal form."""
    local, _, name = text.rpartition("@")
    domain = normalize_domain(name) if local == "*" else None
    return f"*@{domain}" if domain else read_email(text).normal


def read_suppressed(text: str) -> Address:
    address = read_email(text)
    if is_magic_email(address.normal):
        raise ValueError(f"{quoted(text)} {MAGIC_ADDRESS_ERROR}")
    return address


def read_recipient(text: str) -> str:
    if "@" in text:
        return read_email(text).normal
    try:
        return parse_phone(text)
    except InvalidPhone:
        raise ValueError(
            f"expected an email address or a phone number such as +4915112345678, got {quoted(text)}"
        ) from None


def read_token(text: str) -> str:
    if public_id(text) is None:  # the token is not repeated in the error: the line may be logged
        raise ValueError("expected a complete token (heliograph key mint creates one) or a hook secret, v1,whsec_…")
    return text


def read_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"expected a URL such as https://example.com/hooks, got {quoted(text)}")
    return text


def read_target(text: str) -> str:
    parse_target(text)
    return text


def read_webhook_url(text: str) -> str:
    parse_target(split_login(text)[0])
    return text


def read_host_name(text: str) -> str:
    return parse_host(f"[{text}]" if ":" in text else text)[0]


def read_locale(text: str) -> str:
    tag = normalize_tag(text)
    if tag is None:
        raise ValueError(f"expected a language tag such as en or de-AT, got {quoted(text)}")
    return tag


def read_locales(locales: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, parts in locales.items():
        if result.setdefault(convert_at(name, name, Locale), parts) is not parts:
            raise InvalidValue(name, "occurs twice with different spellings")
    return result


def require_items(items: list[str]) -> list[str]:
    if not items:
        raise ValueError("expected at least one, got an empty list")
    return items


def read_origins(origins: list[str]) -> tuple[str, ...]:
    if len(origins) > ORIGINS_MAX:
        raise ValueError(f"expected at most {ORIGINS_MAX} origins, got {len(origins)}")
    return tuple(dict.fromkeys(origins))


def matching(pattern: str, description: str) -> Meta:
    return Meta(pattern=rf"^(?:{pattern})\Z", description=description)


def id_with_prefix(prefix: str) -> Meta:
    return matching(rf"{prefix}[A-Za-z0-9_]{{1,64}}", f"an id such as {prefix}acme (letters, digits and _)")


def in_range(minimum: int, maximum: int = 2**53 - 1) -> Meta:  # above 2^53 - 1 JSON parsers lose precision
    return Meta(ge=minimum, le=maximum)


_COUNTRY_PATTERN = "|".join(sorted(COUNTRIES))
SENDER_PATTERN = r"(?=.*[A-Za-z])[A-Za-z0-9 &._-]{1,11}|\+?[0-9]{3,15}"

Line = Annotated[str, parse_with(check_line)]
OptionalLine = Annotated[str, parse_with(lambda text: check_line(text) if text else "")]
Money = Annotated[str, parse_with(parse_money)]
Domain = Annotated[str, parse_with(read_domain)]
Url = Annotated[str, parse_with(read_url)]
Host = Annotated[str, parse_with(read_host_name)]
Target = Annotated[str, parse_with(read_target)]
Ip = Annotated[str, parse_with(lambda text: str(ipaddress.ip_address(text)))]
Network = Annotated[str, parse_with(lambda text: str(ipaddress.ip_network(text)))]
Country = Annotated[str, matching(_COUNTRY_PATTERN, "a country as ISO code such as GB")]
CountryOrAny = Annotated[str, matching(rf"{_COUNTRY_PATTERN}|\*", "ISO codes such as GB, or '*'")]
Currency = Annotated[str, matching("[A-Z]{3}", "a currency such as USD")]
Language = Annotated[str, matching("[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*", "a language such as en or pt-BR")]
TemplateLanguage = Annotated[str, matching("[A-Za-z]{2,3}(?:[_-][A-Za-z0-9]{2,8})*", "a language such as en or en_GB")]
Locale = Annotated[str, parse_with(read_locale)]
Html = Annotated[str, parse_with(compile_mjml)]
JsonPath = Annotated[str, matching(r"\$(?:\.[A-Za-z0-9_-]+|\[[0-9]+\])*", "a path such as $.message_id")]
FileType = Annotated[
    str,
    matching(
        EXTRA_TYPE_PATTERN.pattern, "a media type in lower case such as application/xml, not message/* or multipart/*"
    ),
]
Categories = Annotated[
    list[Annotated[str, matching(CATEGORY.pattern, "categories of up to 32 characters a-z, 0-9, _ and -")]],
    Meta(max_length=CATEGORIES_MAX),
]
Origins = Annotated[list[Annotated[str, parse_with(read_origin)]], parse_with(read_origins)]
Count = Annotated[int, in_range(0)]
Positive = Annotated[int, in_range(1)]
Port = Annotated[int, in_range(1, 65535)]
Statuses = list[Annotated[int, in_range(100, 599)]]
Names = Annotated[list[str], parse_with(require_items)]
Uncertain = Literal["resend", "stop"]
Passthrough = Annotated[str, matching("tpl_[A-Za-z0-9_]{1,64}|", "a template id such as tpl_free, or '' for none")]

LAYOUT_ID = Meta(
    pattern=r"^(?:lay_[A-Za-z0-9_]{1,64}|)\Z",
    description="a layout id such as lay_letter, or '' for none",
    extra={"read": lambda text: text or None},
)
