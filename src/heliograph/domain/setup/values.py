"""Single values of a setup file: format, parsed value and error message of each."""

import ipaddress
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from heliograph.domain.delivery.magic_recipients import is_magic_email
from heliograph.domain.mail.address import Address, normal_domain, parse_address
from heliograph.domain.mail.attachments import ADDED_TYPE
from heliograph.domain.mail.suppression_file import MAGIC
from heliograph.domain.phones.phone import COUNTRIES, read_phone
from heliograph.domain.refusals import InvalidPhone
from heliograph.domain.sending.pricing import parse_money
from heliograph.domain.setup.keys import public_id
from heliograph.domain.text import line, quoted
from heliograph.domain.validation import Misfit, form, read_at
from heliograph.templates.policy.locales import written
from heliograph.templates.policy.mjml import read_html
from heliograph.webhooks.policy.webhook_url import parse_target, read_host, split_login


def read_domain(given: str) -> str:
    name = normal_domain(given)
    if name is None:
        raise ValueError(f"expected a domain such as acme.test, got {quoted(given)}")
    return name


def read_email(given: str) -> Address:
    address = parse_address(given)
    if address is None:
        raise ValueError(f"expected an email address, got {quoted(given)}")
    return address


def read_inbound(given: str) -> str:
    """Parse an address or `*@domain` into its normal form."""
    local, _, name = given.rpartition("@")
    domain = normal_domain(name) if local == "*" else None
    return f"*@{domain}" if domain else read_email(given).normal


def read_suppressed(given: str) -> Address:
    address = read_email(given)
    if is_magic_email(address.normal):
        raise ValueError(f"{quoted(given)} {MAGIC}")
    return address


def read_recipient(given: str) -> str:
    if "@" in given:
        return read_email(given).normal
    try:
        return read_phone(given)
    except InvalidPhone:
        raise ValueError(
            f"expected an email address or a phone number such as +4915112345678, got {quoted(given)}"
        ) from None


def read_token(given: str) -> str:
    if public_id(given) is None:  # the token is not repeated in the error: the line may be logged
        raise ValueError(
            "expected a whole token with its checksum (heliograph key mint makes one), or a hook's secret, v1,whsec_…"
        )
    return given


def read_url(given: str) -> str:
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"expected an address such as https://example.com/hooks, got {quoted(given)}")
    return given


def read_target(given: str) -> str:
    parse_target(given)
    return given


def read_webhook_url(given: str) -> str:
    parse_target(split_login(given)[0])
    return given


def read_host_name(given: str) -> str:
    return read_host(f"[{given}]" if ":" in given else given)[0]


def read_locale(given: str) -> str:
    tag = written(given)
    if tag is None:
        raise ValueError(f"expected a language tag such as en or de-AT, got {quoted(given)}")
    return tag


def read_locales(given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, parts in given.items():
        if found.setdefault(read_at(name, name, Locale), parts) is not parts:
            raise Misfit(name, "is there twice, written differently")
    return found


def read_some(given: list[str]) -> list[str]:
    if not given:
        raise ValueError("expected at least one, got an empty list")
    return given


def like(pattern: str, what: str) -> Meta:
    return Meta(pattern=rf"^(?:{pattern})\Z", description=what)


def id_like(prefix: str) -> Meta:
    return like(rf"{prefix}[A-Za-z0-9_]{{1,64}}", f"an id such as {prefix}acme (letters, digits and _)")


def between(least: int, most: int = 2**53 - 1) -> Meta:  # above 2^53 - 1 JSON parsers lose precision
    return Meta(ge=least, le=most)


_CODES = "|".join(sorted(COUNTRIES))
SENDER = r"(?=.*[A-Za-z])[A-Za-z0-9 &._-]{1,11}|\+?[0-9]{3,15}"

Line = Annotated[str, form(line)]
Answer = Annotated[str, form(lambda given: line(given) if given else "")]
Money = Annotated[str, form(parse_money)]
Domain = Annotated[str, form(read_domain)]
Url = Annotated[str, form(read_url)]
Host = Annotated[str, form(read_host_name)]
Target = Annotated[str, form(read_target)]
Ip = Annotated[str, form(lambda given: str(ipaddress.ip_address(given)))]
Network = Annotated[str, form(lambda given: str(ipaddress.ip_network(given)))]
Country = Annotated[str, like(_CODES, "a country as ISO code such as GB")]
CountryOrAny = Annotated[str, like(rf"{_CODES}|\*", "ISO codes such as GB, or '*'")]
Currency = Annotated[str, like("[A-Z]{3}", "a currency such as USD")]
Language = Annotated[str, like("[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*", "a language such as en or pt-BR")]
TemplateLanguage = Annotated[str, like("[A-Za-z]{2,3}(?:[_-][A-Za-z0-9]{2,8})*", "a language such as en or en_GB")]
Locale = Annotated[str, form(read_locale)]
Html = Annotated[str, form(read_html)]
JsonPath = Annotated[str, like(r"\$(?:\.[A-Za-z0-9_-]+|\[[0-9]+\])*", "a path such as $.message_id")]
FileType = Annotated[
    str,
    like(ADDED_TYPE.pattern, "a type of files in small letters such as application/xml, not message or multipart"),
]
Count = Annotated[int, between(0)]
Positive = Annotated[int, between(1)]
Port = Annotated[int, between(1, 65535)]
Statuses = list[Annotated[int, between(100, 599)]]
Names = Annotated[list[str], form(read_some)]
Uncertain = Literal["resend", "stop"]
Passthrough = Annotated[str, like("tpl_[A-Za-z0-9_]{1,64}|", "a template's id such as tpl_free, or '' for none")]

LAYOUT = Meta(
    pattern=r"^(?:lay_[A-Za-z0-9_]{1,64}|)\Z",
    description="a layout's id such as lay_letter, or '' for none",
    extra={"read": lambda given: given or None},
)
