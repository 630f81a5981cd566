"""The setup file (contract 14): reading what an operator wrote into plain, checked values.

Nothing is compared with the store here; `setup_plan.py` decides what the file changes.
"""

import ipaddress
import tomllib
from collections.abc import Collection, Mapping
from typing import Any, get_args
from urllib.parse import urlsplit

import msgspec

from heliograph.rules.address import Address, normal_domain, parse_address
from heliograph.rules.phone import COUNTRIES, read_phone
from heliograph.rules.pricing import parse_money
from heliograph.rules.refusals import InvalidPhone, InvalidRequest
from heliograph.rules.setup import records
from heliograph.rules.setup.keys import parse_token
from heliograph.rules.setup.reading import (
    Misread,
    Reader,
    flag,
    line,
    list_of,
    map_of,
    matching,
    number,
    one_of,
    read_at,
    table,
    text,
    typed,
)
from heliograph.rules.setup.webhook import SECRET_PREFIX, checked_events, secret_size
from heliograph.rules.setup.webhook_url import parse_target
from heliograph.rules.text import quoted
from heliograph.rules.verify_text import check_text

CarrierKind = tuple[str, str]  # channel, kind

CHANNELS: tuple[str, ...] = get_args(records.Channel)
SIMULATORS: frozenset[CarrierKind] = frozenset((channel, "simulator") for channel in CHANNELS)


class SetupError(Exception):
    """The setup file is wrong and changes nothing; the message names file, line or key path."""


class SetupFile(msgspec.Struct, frozen=True, kw_only=True):
    """Tables with the file's own names; what is absent in the file is absent here."""

    name: str
    platform: dict[str, Any] = {}
    carriers: list[dict[str, Any]] = []
    teams: list[dict[str, Any]] = []


def read_setup_file(
    text: str,
    environment: Mapping[str, str],
    name: str = "FILE",
    runnable: Collection[CarrierKind] = SIMULATORS,
    known: Mapping[str, CarrierKind] = {},
) -> SetupFile:
    """`runnable`: the carriers that this version can make; `known`: those that are set up, by id. Of these the file
    may write a part.
    """
    try:
        given = _with_environment("", tomllib.loads(text), environment)
        return SetupFile(name=name, **_document(runnable, known)(given))
    except Misread as error:
        raise SetupError(f"{name}: {error.path}: {error.why}") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # not TOML, with its line; or numbers or nesting out of reason
        raise SetupError(f"{name}: {error}") from None


def _with_environment(path: str, value: Any, environment: Mapping[str, str]) -> Any:
    """Every `{ env = "NAME" }` replaced by that variable, so that secrets need not stand in the file."""
    if isinstance(value, list):
        return [_with_environment(f"{path}[{i}]", item, environment) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if list(value) == ["env"] and isinstance(value["env"], str):
        if value["env"] not in environment:
            raise Misread(path, f"the environment has no variable {quoted(value['env'])}")
        return environment[value["env"]]
    return {
        name: _with_environment(f"{path}.{name}" if path else name, item, environment) for name, item in value.items()
    }


# -- the forms of single values ----------------------------------------------------------------------------


def _id(prefix: str) -> Reader:
    return matching(rf"{prefix}[A-Za-z0-9_]{{1,64}}", f"an id such as {prefix}acme (letters, digits and _)")


def _money(value: Any) -> int:
    return parse_money(text(value))


def _domain(value: Any) -> str:
    name = normal_domain(text(value))
    if name is None:
        raise ValueError(f"expected a domain such as acme.test, got {quoted(value)}")
    return name


def _email(value: Any) -> Address:
    address = parse_address(text(value))
    if address is None:
        raise ValueError(f"expected an email address, got {quoted(value)}")
    return address


def _bare_email(value: Any) -> str:
    return _email(value).given


def _verify_text(value: Any) -> str:
    return line(check_text(text(value)))


def read_recipient(value: Any) -> str:
    if "@" in text(value):
        return _email(value).normal
    try:
        return read_phone(value)
    except InvalidPhone:
        raise ValueError(
            f"expected an email address or a phone number such as +4915112345678, got {quoted(value)}"
        ) from None


def _token(value: Any) -> str:
    if parse_token(text(value)) is None:  # the token itself is not repeated: the line may land in a log
        raise ValueError("expected a whole token with its checksum (heliograph key mint makes one)")
    return str(value)


def _url(value: Any) -> str:
    parts = urlsplit(text(value))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"expected an address such as https://example.com/hooks, got {quoted(value)}")
    return str(value)


def _ip(value: Any) -> str:
    return str(ipaddress.ip_address(text(value)))


def _network(value: Any) -> str:
    return str(ipaddress.ip_network(text(value)))


def _webhook_url(value: Any) -> str:
    parse_target(text(value))
    return str(value)


def _webhook_secret(value: Any) -> str:
    if not secret_size(text(value)):
        raise ValueError(f"expected {SECRET_PREFIX} and base64 after it")
    return str(value)


def _events(value: Any) -> tuple[str, ...]:
    try:
        return checked_events(list_of(text)(value))
    except InvalidRequest as refusal:
        raise ValueError(refusal.message) from None


_CODES = "|".join(sorted(COUNTRIES))
COUNTRY = matching(_CODES, "a country as ISO code such as GB")
SENDER_VALUE = matching(
    r"(?=.*[A-Za-z])[A-Za-z0-9 &._-]{1,11}|\+?[0-9]{3,15}", "a sender of at most 11 letters and digits, or a number"
)
_COUNTRY_OR_ANY = matching(r"[A-Z]{2}|\*", "ISO codes such as GB, or '*'")
_COUNTRIES = list_of(_COUNTRY_OR_ANY)
_PRICED = matching(rf"{_CODES}|\*", "ISO codes such as GB, or '*'")
_CURRENCY = matching("[A-Z]{3}", "a currency such as USD")
_LANGUAGE = matching("[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*", "a language such as en or pt-BR")
_COUNT = number()
_PORT = number(1, 65535)
_JSON_PATH = matching(r"\$(?:\.[A-Za-z0-9_-]+|\[[0-9]+\])*", "a path such as $.message_id")
_UNCERTAIN = one_of("resend", "stop")
_STATUSES = list_of(number(100, 599))


# -- carriers ----------------------------------------------------------------------------------------------

# Each kind's own fields: what may be written, and after it what must be.
CARRIER_FIELDS: dict[CarrierKind, tuple[dict[str, Reader], tuple[str, ...]]] = {
    ("email", "mx"): (
        {
            "helo": _domain,
            "source_ips": list_of(_ip),
            "tls": one_of("opportunistic", "required"),
            "per_host": number(1),
            "port": _PORT,
            "resolver": matching(r".+:[0-9]{1,5}", "host:port"),
            "allow_private": list_of(_network),
        },
        (),
    ),
    ("email", "smtp"): (
        {
            "host": line,
            "port": _PORT,
            "tls": one_of("none", "starttls", "tls"),
            "username": text,
            "password": text,
            "connections": number(1),
            "final": flag,
        },
        ("host",),
    ),
    ("sms", "smpp"): (
        {
            "host": line,
            "port": _PORT,
            "tls": flag,
            "system_id": text,
            "password": text,
            "system_type": text,
            "window": number(1),
            "throughput": _COUNT,
            "source_addr": line,
            "long": one_of("udh", "payload"),
            "receipt_id": one_of("same", "hex", "decimal"),
            "uncertain": _UNCERTAIN,
        },
        ("host", "system_id", "password"),
    ),
    ("sms", "twilio"): (
        {
            "base_url": _url,
            "account_sid": line,
            "auth_token": text,
            "signing_key": text,
            "from": line,
            "uncertain": one_of("lookup", "resend", "stop"),
        },
        ("account_sid", "auth_token"),
    ),
    ("sms", "http"): (
        {
            "url": _url,
            "from": line,
            "method": one_of("GET", "POST", "PUT"),
            "headers": map_of(matching("[A-Za-z0-9-]+", "a header's name"), text),
            "body": text,
            "accepted": table({"status": _STATUSES, "id": _JSON_PATH}),
            "refused": table({"status": _STATUSES, "text": _JSON_PATH}),
            "callback": table(
                {
                    "each": _JSON_PATH,
                    "id": _JSON_PATH,
                    "status": _JSON_PATH,
                    "delivered": list_of(text),
                    "failed": list_of(text),
                }
            ),
            "callback_secret": text,
            "callback_check": one_of("signature", "token"),
            "callback_timestamp": _JSON_PATH,
            "uncertain": _UNCERTAIN,
        },
        ("url",),
    ),
    ("whatsapp", "cloud_api"): (
        {
            "base_url": _url,
            "phone_number_id": line,
            "access_token": text,
            "app_secret": text,
            "verify_token": text,
            "uncertain": _UNCERTAIN,
        },
        ("phone_number_id", "access_token"),
    ),
    **{kind: ({"step_ms": number(0, 3_600_000)}, ()) for kind in sorted(SIMULATORS)},
}

_CARRIER: dict[str, Reader] = {
    "id": matching("[a-z0-9-]{1,64}", "an id of a-z, 0-9 and -"),
    "channel": one_of(*CHANNELS),
    "kind": text,
    "countries": _COUNTRIES,
    "enabled": flag,
    "priority": number(-1_000_000, 1_000_000),
}


def _carrier(runnable: Collection[CarrierKind], known: Mapping[str, CarrierKind]) -> Reader:
    def read(value: Any) -> dict[str, Any]:
        before = known.get(str(typed(value, dict).get("id")))
        if before:
            value = {"channel": before[0], "kind": before[1]} | value
        for name in ("id", "channel", "kind"):
            if name not in value:
                raise Misread(name, "is missing")
        channel, kind = (read_at(name, _CARRIER[name], value[name]) for name in ("channel", "kind"))
        if (channel, kind) not in CARRIER_FIELDS:
            kinds = [k for c, k in CARRIER_FIELDS if c == channel]
            raise Misread("kind", f"{quoted(kind)} is no kind for {channel}. Known: {', '.join(kinds)}")
        if (channel, kind) not in runnable:
            usable = " or ".join(repr(k) for c, k in sorted(runnable) if c == channel)
            raise Misread("kind", f"{kind!r} is not built into this version yet; use {usable}")
        fields, needed = CARRIER_FIELDS[channel, kind]
        needed = () if before == (channel, kind) else needed
        given: dict[str, Any] = table(_CARRIER | fields, *needed)(value)
        return {name: given[name] for name in given if name in _CARRIER} | {
            "options": {name: given[name] for name in given if name in fields}
        }

    return read


# -- the file ----------------------------------------------------------------------------------------------

_DISPLAY_NAME = table({"id": _id("dn_"), "name": line, "approved": flag}, "name")

TEMPLATE: dict[str, Reader] = {
    "id": _id("tpl_"),
    "channel": one_of(*CHANNELS),
    "name": line,
    "status": one_of("approved", "draft", "archived"),
    "subject": text,
    "html": text,
    "text": text,
    "body": text,
    "category": one_of("AUTHENTICATION", "UTILITY", "MARKETING"),
    "language": matching("[A-Za-z]{2,3}(?:[_-][A-Za-z0-9]{2,8})*", "a language such as en or en_GB"),
    "upstream_name": line,
    "variables": list_of(text),
    "optional": list_of(text),
    "price": _money,
    "prices": map_of(COUNTRY, _money),
    "examples": map_of(text, text),
    "validity_minutes": number(0, 2880),
}

_TEAM: dict[str, Reader] = {
    "id": _id("team_"),
    "name": line,
    "mode": one_of("sandbox", "live"),
    "suspended": flag,
    "currency": _CURRENCY,
    "credit": _money,
    "email_quota": _COUNT,
    "features": list_of(one_of("verify")),
    "rate_limit": _COUNT,
    "segmenting": one_of("spec", "udh"),
    "verify": table(
        {
            "countries": _COUNTRIES,
            "per_phone_10m": _COUNT,
            "per_phone_day": _COUNT,
            "per_prefix_10m": _COUNT,
            "min_interval_s": _COUNT,
            "wrong_per_phone_day": _COUNT,
            "conversion_guard": flag,
            "magic": flag,
            "language": _LANGUAGE,
            "webotp": lambda value: _domain(value) if value != "" else "",
        }
    ),
    "marketing_per_day": _COUNT,
    "credit_low": _money,
    "domains_max": _COUNT,
    "keep_content_days": number(1, records.KEEP_CONTENT_DAYS_MAX),
    "keep_messages_days": number(1, records.KEEP_MESSAGES_DAYS_MAX),
    "domains": list_of(
        table(
            {
                "id": _id("dom_"),
                "name": _domain,
                "brand": line,
                "verified": flag,
                "approved": flag,
                "display_names": list_of(_DISPLAY_NAME),
            },
            "name",
        )
    ),
    "templates": list_of(table(TEMPLATE)),
    "keys": list_of(
        table(
            {"name": line, "token": _token, "domain": _domain, "scopes": list_of(one_of("send", "manage"))},
            "name",
        )
    ),
    "webhooks": list_of(table({"url": _webhook_url, "secret": _webhook_secret, "events": _events}, "url")),
    "suppressions": list_of(table({"email": _email, "reason": one_of("bounce", "complaint", "manual")}, "email")),
    "recipients": list_of(table({"address": read_recipient}, "address")),
    "sender_ids": list_of(
        table(
            {
                "country": COUNTRY,
                "value": SENDER_VALUE,
                "approved": flag,
            },
            "country",
        )
    ),
}


_PLATFORM: dict[str, Reader] = {
    "sender": _bare_email,
    "brand": line,
    "verify_price": map_of(_CURRENCY, _money),
    "verify_text": map_of(_LANGUAGE, _verify_text),
    "mail_host": _domain,
    "templates_need_approval": flag,
    "prices": map_of(one_of("sms", "whatsapp"), map_of(_CURRENCY, map_of(_PRICED, _money))),
    "sandbox_per_day": _COUNT,
}


def read_team_fields(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Single fields of a team, as a form gives them: what they mean, and what is wrong with the others."""
    return _read_fields(_TEAM, given)


def read_platform_fields(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    return _read_fields(_PLATFORM, given)


def _read_fields(known: dict[str, Reader], given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    fields, errors = {}, {}
    for name, value in given.items():
        try:
            fields[name] = known[name](value)
        except ValueError as error:
            errors[name] = str(error)
    return fields, errors


def _document(runnable: Collection[CarrierKind], known: Mapping[str, CarrierKind]) -> Reader:
    return table(
        {
            "platform": table(_PLATFORM),
            "carriers": list_of(_carrier(runnable, known)),
            "teams": list_of(table(_TEAM, "id")),
        }
    )
