"""The setup file (contract 14): reading what an operator wrote into plain, checked values.

Nothing is compared with the store here; `plan.py` decides what the file changes.
"""

import ipaddress
import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, field

from heliograph.rules.delivery.magic import is_magic_email
from heliograph.rules.mail.address import Address, normal_domain, parse_address
from heliograph.rules.mail.attachments import ADDED_TYPE
from heliograph.rules.mail.suppression_file import MAGIC
from heliograph.rules.phones.phone import COUNTRIES, read_phone
from heliograph.rules.pricing import parse_money
from heliograph.rules.refusals import InvalidPhone, InvalidRequest
from heliograph.rules.setup import records
from heliograph.rules.setup.keys import public_id
from heliograph.rules.setup.webhook import SECRET_PREFIX, check_format, checked_events, secret_size
from heliograph.rules.setup.webhook_url import parse_target, read_host, split_login
from heliograph.rules.shape import Misfit, form, read, read_at
from heliograph.rules.templates.check import LENGTH_MAX, LIST_MAX
from heliograph.rules.templates.locales import written
from heliograph.rules.text import line, quoted
from heliograph.rules.verify.verify_text import check_text

CarrierKind = tuple[str, str]  # channel, kind

CHANNELS: tuple[str, ...] = get_args(records.Channel)
SIMULATORS: frozenset[CarrierKind] = frozenset((channel, "simulator") for channel in CHANNELS)


class SetupError(Exception):
    """The setup file is wrong and changes nothing; the message names file, line or key path."""

    def __init__(self, message: str, problems: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)  # of the template that is wrong, as `apply --json` tells them


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
        document = read(given, _Document)
        for i, carrier in enumerate(document.get("carriers", [])):
            document["carriers"][i] = read_at(f"carriers[{i}]", carrier, known, partial(_read_carrier, runnable))
        return SetupFile(name=name, **document)
    except (ValueError, RecursionError) as error:
        # What does not fit, with its path; not TOML, with its line; numbers or nesting out of reason.
        raise SetupError(f"{name}: {error}") from None


def _read_fields(table: type["_Table"], given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Single fields of a table, as a form gives them: what they mean, and what is wrong with the others."""
    kinds = {one.encode_name: one.type for one in msgspec.structs.fields(table)}
    fields, errors = {}, {}
    for name, value in given.items():
        try:
            fields[name] = read(value, kinds[name])
        except ValueError as error:
            errors[name] = str(error)
    return fields, errors


def _with_environment(path: str, value: Any, environment: Mapping[str, str]) -> Any:
    """Every `{ env = "NAME" }` replaced by that variable, so that secrets need not stand in the file."""
    if isinstance(value, list):
        return [_with_environment(f"{path}[{i}]", item, environment) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if list(value) == ["env"] and isinstance(value["env"], str):
        if value["env"] not in environment:
            raise Misfit(path, f"the environment has no variable {quoted(value['env'])}")
        return environment[value["env"]]
    return {
        name: _with_environment(f"{path}.{name}" if path else name, item, environment) for name, item in value.items()
    }


# -- the forms of single values ----------------------------------------------------------------------------


def _domain(given: str) -> str:
    name = normal_domain(given)
    if name is None:
        raise ValueError(f"expected a domain such as acme.test, got {quoted(given)}")
    return name


def _email(given: str) -> Address:
    address = parse_address(given)
    if address is None:
        raise ValueError(f"expected an email address, got {quoted(given)}")
    return address


def _inbound(given: str) -> str:
    """In its normal form."""
    local, _, name = given.rpartition("@")
    domain = normal_domain(name) if local == "*" else None
    return f"*@{domain}" if domain else _email(given).normal


def _suppressed(given: str) -> Address:
    address = _email(given)
    if is_magic_email(address.normal):
        raise ValueError(f"{quoted(given)} {MAGIC}")
    return address


def read_recipient(given: str) -> str:
    if "@" in given:
        return _email(given).normal
    try:
        return read_phone(given)
    except InvalidPhone:
        raise ValueError(
            f"expected an email address or a phone number such as +4915112345678, got {quoted(given)}"
        ) from None


def _token(given: str) -> str:
    if public_id(given) is None:  # the token itself is not repeated: the line may land in a log
        raise ValueError(
            "expected a whole token with its checksum (heliograph key mint makes one), or a hook's secret, v1,whsec_…"
        )
    return given


def _url(given: str) -> str:
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"expected an address such as https://example.com/hooks, got {quoted(given)}")
    return given


def _target(given: str) -> str:
    parse_target(given)
    return given


def _webhook_url(given: str) -> str:
    parse_target(split_login(given)[0])
    return given


def _host(given: str) -> str:
    return read_host(f"[{given}]" if ":" in given else given)[0]


def _webhook_secret(given: str) -> str:
    if not secret_size(given):
        raise ValueError(f"expected {SECRET_PREFIX} and base64 after it")
    return given


def _events(given: list[str]) -> tuple[str, ...]:
    try:
        return checked_events(given)
    except InvalidRequest as refusal:
        raise ValueError(refusal.message) from None


def _format(given: str) -> str:
    try:
        check_format(given)
    except InvalidRequest as refusal:
        raise ValueError(refusal.message) from None
    return given


def _locale(given: str) -> str:
    tag = written(given)
    if tag is None:
        raise ValueError(f"expected a language tag such as en or de-AT, got {quoted(given)}")
    return tag


def _locales(given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, parts in given.items():
        if found.setdefault(read_at(name, name, _Locale), parts) is not parts:
            raise Misfit(name, "is there twice, written differently")
    return found


def _some(given: list[str]) -> list[str]:
    if not given:
        raise ValueError("expected at least one, got an empty list")
    return given


def _like(pattern: str, what: str) -> Meta:
    return Meta(pattern=rf"^(?:{pattern})\Z", description=what)


def _id(prefix: str) -> Meta:
    return _like(rf"{prefix}[A-Za-z0-9_]{{1,64}}", f"an id such as {prefix}acme (letters, digits and _)")


def _from(least: int, most: int = 2**53 - 1) -> Meta:  # beyond it, JSON readers are not exact
    return Meta(ge=least, le=most)


_CODES = "|".join(sorted(COUNTRIES))
_SENDER = r"(?=.*[A-Za-z])[A-Za-z0-9 &._-]{1,11}|\+?[0-9]{3,15}"

_Line = Annotated[str, form(line)]
_Answer = Annotated[str, form(lambda given: line(given) if given else "")]
_Money = Annotated[str, form(parse_money)]
_Domain = Annotated[str, form(_domain)]
_Url = Annotated[str, form(_url)]
_Host = Annotated[str, form(_host)]
_Target = Annotated[str, form(_target)]
_Ip = Annotated[str, form(lambda given: str(ipaddress.ip_address(given)))]
_Network = Annotated[str, form(lambda given: str(ipaddress.ip_network(given)))]
_Country = Annotated[str, _like(_CODES, "a country as ISO code such as GB")]
_CountryOrAny = Annotated[str, _like(r"[A-Z]{2}|\*", "ISO codes such as GB, or '*'")]
_Priced = Annotated[str, _like(rf"{_CODES}|\*", "ISO codes such as GB, or '*'")]
_Currency = Annotated[str, _like("[A-Z]{3}", "a currency such as USD")]
_Language = Annotated[str, _like("[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*", "a language such as en or pt-BR")]
_TemplateLanguage = Annotated[str, _like("[A-Za-z]{2,3}(?:[_-][A-Za-z0-9]{2,8})*", "a language such as en or en_GB")]
_Locale = Annotated[str, form(_locale)]
_JsonPath = Annotated[str, _like(r"\$(?:\.[A-Za-z0-9_-]+|\[[0-9]+\])*", "a path such as $.message_id")]
_FileType = Annotated[
    str,
    _like(ADDED_TYPE.pattern, "a type of files in small letters such as application/xml, not message or multipart"),
]
_Count = Annotated[int, _from(0)]
_Positive = Annotated[int, _from(1)]
_Port = Annotated[int, _from(1, 65535)]
_Statuses = list[Annotated[int, _from(100, 599)]]
_Names = Annotated[list[str], form(_some)]
_Uncertain = Literal["resend", "stop"]
_Passthrough = Annotated[str, _like("tpl_[A-Za-z0-9_]{1,64}|", "a template's id such as tpl_free, or '' for none")]

_LAYOUT = Meta(
    pattern=r"^(?:lay_[A-Za-z0-9_]{1,64}|)\Z",
    description="a layout's id such as lay_letter, or '' for none",
    extra={"read": lambda given: given or None},
)

_ABSENT: Any = msgspec.UNSET  # what the file leaves out


class _Table(msgspec.Struct):
    """What may be written; what has no default must be."""


# -- carriers ----------------------------------------------------------------------------------------------


class _Carrier(_Table):
    id: Annotated[str, _like("[a-z0-9-]{1,64}", "an id of a-z, 0-9 and -")]
    channel: records.Channel
    kind: str
    countries: list[_CountryOrAny] = _ABSENT
    enabled: bool = _ABSENT
    priority: Annotated[int, _from(-records.PRIORITY_MAX, records.PRIORITY_MAX)] = _ABSENT


class _Simulator(_Carrier):
    step_ms: Annotated[int, _from(0, 3_600_000)] = _ABSENT


class _Mx(_Carrier):
    helo: _Domain = _ABSENT
    source_ips: list[_Ip] = _ABSENT
    tls: Literal["opportunistic", "required"] = _ABSENT
    per_host: _Positive = _ABSENT
    port: _Port = _ABSENT
    resolver: Annotated[str, _like(r".+:[0-9]{1,5}", "host:port")] = _ABSENT
    allow_private: list[_Network] = _ABSENT


class _Smtp(_Carrier, kw_only=True):
    host: _Host
    port: _Port = _ABSENT
    tls: Literal["none", "starttls", "tls"] = _ABSENT
    username: str = _ABSENT
    password: str = _ABSENT
    connections: _Positive = _ABSENT
    final: bool = _ABSENT
    provider: Literal["ses", "postmark", "mailgun", "sendgrid", "resend", "brevo"] = _ABSENT
    callback_secret: str = _ABSENT
    callback_key: str = _ABSENT
    callback_topic: _Line = _ABSENT
    callback_cert: str = _ABSENT


class _Smpp(_Carrier, kw_only=True):
    host: _Host
    port: _Port = _ABSENT
    tls: bool = _ABSENT
    system_id: str
    password: str
    system_type: str = _ABSENT
    window: _Positive = _ABSENT
    throughput: _Count = _ABSENT
    source_addr: _Line = _ABSENT
    long: Literal["udh", "payload"] = _ABSENT
    receipt_id: Literal["same", "hex", "decimal"] = _ABSENT
    uncertain: _Uncertain = _ABSENT


class _Twilio(_Carrier, kw_only=True):
    base_url: _Target = _ABSENT
    account_sid: _Line
    auth_token: str
    signing_key: str = _ABSENT
    from_: _Line = field(name="from", default=_ABSENT)
    uncertain: Literal["lookup", "resend", "stop"] = _ABSENT


class _HttpAccepted(_Table):
    status: _Statuses = _ABSENT
    id: _JsonPath = _ABSENT


class _HttpRefused(_Table):
    status: _Statuses = _ABSENT
    text: _JsonPath = _ABSENT


class _HttpCallback(_Table):
    each: _JsonPath = _ABSENT
    id: _JsonPath = _ABSENT
    status: _JsonPath = _ABSENT
    delivered: list[str] = _ABSENT
    failed: list[str] = _ABSENT


class _HttpIncoming(_Table, kw_only=True):
    from_: _JsonPath = field(name="from")
    to: _JsonPath
    text: _JsonPath
    id: _JsonPath = _ABSENT


class _Http(_Carrier, kw_only=True):
    url: _Url
    from_: _Line = field(name="from", default=_ABSENT)
    method: Literal["GET", "POST", "PUT"] = _ABSENT
    headers: dict[Annotated[str, _like("[A-Za-z0-9-]+", "a header's name")], str] = _ABSENT
    body: str = _ABSENT
    accepted: _HttpAccepted = _ABSENT
    refused: _HttpRefused = _ABSENT
    callback: _HttpCallback = _ABSENT
    incoming: _HttpIncoming = _ABSENT
    callback_secret: str = _ABSENT
    callback_check: Literal["signature", "token"] = _ABSENT
    callback_timestamp: _JsonPath = _ABSENT
    uncertain: _Uncertain = _ABSENT


class _CloudApi(_Carrier, kw_only=True):
    base_url: _Target = _ABSENT
    phone_number_id: _Line
    access_token: str
    app_secret: str = _ABSENT
    verify_token: str = _ABSENT
    uncertain: _Uncertain = _ABSENT


CARRIER_KINDS: dict[CarrierKind, type[_Carrier]] = {
    ("email", "mx"): _Mx,
    ("email", "smtp"): _Smtp,
    ("sms", "smpp"): _Smpp,
    ("sms", "twilio"): _Twilio,
    ("sms", "http"): _Http,
    ("whatsapp", "cloud_api"): _CloudApi,
    **dict.fromkeys(sorted(SIMULATORS), _Simulator),
}


def option_names(kind: CarrierKind) -> list[str]:
    """The kind's own fields."""
    fields = msgspec.structs.fields(CARRIER_KINDS[kind])
    return [one.encode_name for one in fields if one.name not in _Carrier.__struct_fields__]


def carrier_fields(kind: CarrierKind) -> list[msgspec.structs.FieldInfo]:
    """The kind's own fields, and the countries that it serves."""
    own = set(option_names(kind)) | ({"countries"} if kind[0] != "email" else set())
    return [one for one in msgspec.structs.fields(CARRIER_KINDS[kind]) if one.encode_name in own]


def _read_carrier(
    runnable: Collection[CarrierKind], given: dict[str, Any], known: Mapping[str, CarrierKind]
) -> dict[str, Any]:
    before = known.get(str(given.get("id")))
    if before:
        given = {"channel": before[0], "kind": before[1]} | given
    name = read({field: given[field] for field in ("id", "channel", "kind") if field in given}, _Carrier)
    kind = name["channel"], name["kind"]
    if kind not in CARRIER_KINDS:
        kinds = [k for c, k in CARRIER_KINDS if c == kind[0]]
        raise Misfit("kind", f"{quoted(kind[1])} is no kind for {kind[0]}. Known: {', '.join(kinds)}")
    if kind not in runnable:
        usable = " or ".join(repr(k) for c, k in sorted(runnable) if c == kind[0])
        raise Misfit("kind", f"{kind[1]!r} is not built into this version yet; use {usable}")
    found = read(given, _part_of(CARRIER_KINDS[kind]) if kind == before else CARRIER_KINDS[kind])
    options = {field: found.pop(field) for field in option_names(kind) if field in found}
    return {**found, "options": options}


def _part_of(table: type[_Table]) -> type[msgspec.Struct]:
    """The same fields, none of them needed."""
    fields = msgspec.structs.fields(table)
    absent = [(one.name, one.type, field(name=one.encode_name, default=_ABSENT)) for one in fields]
    return msgspec.defstruct(table.__name__, absent)


# -- the file ----------------------------------------------------------------------------------------------


class _Platform(_Table):
    sender: Annotated[str, form(lambda given: _email(given).given)] = _ABSENT
    brand: _Line = _ABSENT
    verify_price: dict[_Currency, _Money] = _ABSENT
    verify_text: dict[_Language, Annotated[str, form(lambda given: line(check_text(given)))]] = _ABSENT
    mail_host: _Domain = _ABSENT
    templates_need_approval: bool = _ABSENT
    prices: dict[Literal["sms", "whatsapp"], dict[_Currency, dict[_Priced, _Money]]] = _ABSENT
    sandbox_per_day: _Count = _ABSENT
    log_requests_per_second: Annotated[int, _from(0, 100)] = _ABSENT
    compat_hosts: dict[_Domain, records.Foreign] = _ABSENT
    attachment_types: list[_FileType] = _ABSENT


class _Verify(_Table):
    countries: list[_CountryOrAny] = _ABSENT
    per_phone_10m: _Count = _ABSENT
    per_phone_day: _Count = _ABSENT
    per_prefix_10m: _Count = _ABSENT
    min_interval_s: _Count = _ABSENT
    wrong_per_phone_day: _Count = _ABSENT
    conversion_guard: bool = _ABSENT
    magic: bool = _ABSENT
    inbox: bool = _ABSENT
    language: _Language = _ABSENT
    webotp: Annotated[str, form(lambda given: _domain(given) if given else "")] = _ABSENT
    channels: Annotated[list[records.Channel], form(_some)] = _ABSENT


class _OptOut(_Table):
    words: Annotated[list[_Line], form(_some)] = _ABSENT
    start_words: Annotated[list[_Line], form(_some)] = _ABSENT
    stop_text: _Answer = _ABSENT
    start_text: _Answer = _ABSENT
    help_text: _Answer = _ABSENT


class _DisplayName(_Table, kw_only=True):
    id: Annotated[str, _id("dn_")] = _ABSENT
    name: _Line
    approved: bool = _ABSENT


class _SendingDomain(_Table, kw_only=True):
    id: Annotated[str, _id("dom_")] = _ABSENT
    name: _Domain
    brand: _Line = _ABSENT
    verified: bool = _ABSENT
    approved: bool = _ABSENT
    display_names: list[_DisplayName] = _ABSENT


class _Layout(_Table):
    id: Annotated[str, _id("lay_")] = _ABSENT
    name: _Line = _ABSENT
    status: records.Status = _ABSENT
    html: str = _ABSENT
    text: str = _ABSENT


class _Variable(_Table):
    name: str
    list: _Names = _ABSENT
    max: Annotated[int, _from(1, LIST_MAX)] = _ABSENT
    max_length: Annotated[int, _from(1, LENGTH_MAX)] = _ABSENT


class _LocaleParts(_Table):
    subject: str = _ABSENT
    html: str = _ABSENT
    text: str = _ABSENT
    body: str = _ABSENT
    language: _TemplateLanguage = _ABSENT
    upstream_name: _Line = _ABSENT


class _Template(_Table):
    id: Annotated[str, _id("tpl_")] = _ABSENT
    channel: records.Channel = _ABSENT
    name: _Line = _ABSENT
    status: records.Status = _ABSENT
    subject: str = _ABSENT
    html: str = _ABSENT
    text: str = _ABSENT
    body: str = _ABSENT
    category: Literal["AUTHENTICATION", "UTILITY", "MARKETING"] = _ABSENT
    language: _TemplateLanguage = _ABSENT
    upstream_name: _Line = _ABSENT
    variables: list[str | _Variable] = _ABSENT
    locale: _Locale = _ABSENT
    locales: Annotated[dict[str, _LocaleParts], form(_locales)] = _ABSENT
    timezone: _Line = _ABSENT
    layout: Annotated[str, _LAYOUT] = _ABSENT
    optional: list[str] = _ABSENT
    price: _Money = _ABSENT
    prices: dict[_Country, _Money] = _ABSENT
    examples: dict[str, str] = _ABSENT
    validity_minutes: Annotated[int, _from(0, 2880)] = _ABSENT
    priority: records.Priority = _ABSENT


class _Key(_Table):
    name: _Line
    token: Annotated[str, form(_token)] = _ABSENT
    domain: _Domain = _ABSENT
    scopes: Annotated[list[records.Scope], form(_some)] = _ABSENT
    networks: list[_Network] = _ABSENT
    passthrough: _Passthrough = _ABSENT
    hook: bool = _ABSENT


class _Webhook(_Table):
    url: Annotated[str, form(_webhook_url)]
    secret: Annotated[str, form(_webhook_secret)] = _ABSENT
    events: Annotated[list[str], form(_events)] = _ABSENT
    format: Annotated[str, form(_format)] = _ABSENT


class _Suppression(_Table):
    email: Annotated[str, form(_suppressed)]
    reason: Literal["bounce", "complaint", "manual"] = _ABSENT


class _RecipientTable(_Table):
    address: Annotated[str, form(read_recipient)]


class _SenderId(_Table):
    country: _Country
    value: Annotated[str, _like(_SENDER, "a sender of at most 11 letters and digits, or a number")] = _ABSENT
    approved: bool = _ABSENT


class _Inbound(_Table):
    address: Annotated[str, form(_inbound)]


class _Team(_Table):
    id: Annotated[str, _id("team_")]
    name: _Line = _ABSENT
    mode: records.Mode = _ABSENT
    suspended: bool = _ABSENT
    currency: _Currency = _ABSENT
    credit: _Money = _ABSENT
    email_quota: _Count = _ABSENT
    features: list[Literal["verify"]] = _ABSENT
    rate_limit: _Count = _ABSENT
    segmenting: records.Segmenting = _ABSENT
    verify: _Verify = _ABSENT
    opt_out: _OptOut = _ABSENT
    marketing_per_day: _Count = _ABSENT
    credit_low: _Money = _ABSENT
    octets_per_day: _Count = _ABSENT
    domains_max: _Count = _ABSENT
    keep_content_days: Annotated[int, _from(1, records.KEEP_CONTENT_DAYS_MAX)] = _ABSENT
    keep_messages_days: Annotated[int, _from(1, records.KEEP_MESSAGES_DAYS_MAX)] = _ABSENT
    passthrough: _Passthrough = _ABSENT
    catch: bool = _ABSENT
    attachment_types: list[_FileType] = _ABSENT
    domains: list[_SendingDomain] = _ABSENT
    layouts: list[_Layout] = _ABSENT
    templates: list[_Template] = _ABSENT
    keys: list[_Key] = _ABSENT
    webhooks: list[_Webhook] = _ABSENT
    suppressions: list[_Suppression] = _ABSENT
    recipients: list[_RecipientTable] = _ABSENT
    sender_ids: list[_SenderId] = _ABSENT
    inbound: list[_Inbound] = _ABSENT


class _Document(_Table):
    platform: _Platform = _ABSENT
    carriers: list[dict[str, Any]] = _ABSENT
    teams: list[_Team] = _ABSENT


read_platform_fields = partial(_read_fields, _Platform)
read_team_fields = partial(_read_fields, _Team)
read_layout_fields = partial(_read_fields, _Layout)
read_template_fields = partial(_read_fields, _Template)
read_sender_id_fields = partial(_read_fields, _SenderId)
