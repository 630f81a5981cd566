"""Setup file (contract 14): parses and validates an operator's file; `plan.py` decides what the file changes."""

import datetime
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import field

from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup import records
from heliograph.domain.setup.carrier_kinds import CARRIER_KINDS, SIMULATORS, CarrierKind, Label, option_names
from heliograph.domain.setup.key_restrictions import RestrictionFields
from heliograph.domain.setup.source_options import POOL_NAME
from heliograph.domain.setup.values import (
    LAYOUT_ID,
    SENDER_PATTERN,
    Categories,
    Count,
    Country,
    CountryOrAny,
    Currency,
    Domain,
    FileType,
    Html,
    Language,
    Line,
    Locale,
    Money,
    Names,
    Network,
    OptionalLine,
    Origins,
    Passthrough,
    TemplateLanguage,
    id_with_prefix,
    in_range,
    matching,
    read_domain,
    read_email,
    read_inbound,
    read_locales,
    read_recipient,
    read_suppressed,
    read_token,
    read_webhook_url,
    require_items,
)
from heliograph.domain.text import check_line, quoted
from heliograph.domain.validation import InvalidValue, convert_at, convert_value, parse_with
from heliograph.domain.verify.verify_text import check_text
from heliograph.templates.policy.check import LIST_ITEMS_MAX, MAX_LENGTH_LIMIT
from heliograph.webhooks.policy.webhook import SECRET_PREFIX, check_format, secret_size, validate_events


class SetupError(Exception):
    """The setup file is invalid and changes nothing. The text names the file, and the line or the key path."""

    def __init__(self, message: str, problems: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)  # problems of the invalid template, as `apply --json` reports them


class SetupFile(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed setup file, with the field names of the file. A field that is absent in the file is absent here."""

    name: str
    platform: dict[str, Any] = {}
    carriers: list[dict[str, Any]] = []
    teams: list[dict[str, Any]] = []


def parse_setup_file(
    text: str,
    environment: Mapping[str, str],
    name: str = "FILE",
    supported: Collection[CarrierKind] = SIMULATORS,
    existing: Mapping[str, CarrierKind] = {},
) -> SetupFile:
    """Parse a setup file; raise an error with the position of the problem.

    `supported`: carrier kinds of this version. `existing`: kinds of the existing carriers by id; for these, the file
    may contain only some of the fields.
    """
    try:
        content = _resolve_environment("", dates_as_text(tomllib.loads(text)), environment)
        document = convert_value(content, _Document)
        for i, carrier in enumerate(document.get("carriers", [])):
            document["carriers"][i] = convert_at(
                f"carriers[{i}]", carrier, existing, partial(_parse_carrier, supported)
            )
        return SetupFile(name=name, **document)
    except (ValueError, RecursionError) as error:
        # The error names the path of an invalid value, the line of a TOML error, or excessive numbers or nesting.
        raise SetupError(f"{name}: {error}") from None


def _parse_fields(table: type["_Table"], values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Parse single fields of a table, as a form submits them; return the valid values and the errors of the others."""
    field_types = {field_info.encode_name: field_info.type for field_info in msgspec.structs.fields(table)}
    fields, errors = {}, {}
    for name, value in values.items():
        try:
            fields[name] = convert_value(value, field_types[name])
        except ValueError as error:
            errors[name] = str(error)
    return fields, errors


def values_from_environment(text: str, environment: Mapping[str, str]) -> frozenset[str]:
    """Return the values of all environment variables that a setup file references as `{ env = "NAME" }`.

    The user already knows these secrets, so they are not printed.
    """

    def names(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if list(value) == ["env"] and isinstance(value["env"], str):
                yield value["env"]
            else:
                for item in value.values():
                    yield from names(item)
        elif isinstance(value, list):
            for item in value:
                yield from names(item)

    return frozenset(environment[name] for name in names(tomllib.loads(text)) if name in environment)


def _resolve_environment(path: str, value: Any, environment: Mapping[str, str]) -> Any:
    """Replace every `{ env = "NAME" }` by the variable's value, so that secrets need not be in the file."""
    if isinstance(value, list):
        return [_resolve_environment(f"{path}[{i}]", item, environment) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if list(value) == ["env"] and isinstance(value["env"], str):
        if value["env"] not in environment:
            raise InvalidValue(path, f"the environment variable {quoted(value['env'])} is not set")
        return environment[value["env"]]
    return {
        name: _resolve_environment(f"{path}.{name}" if path else name, item, environment)
        for name, item in value.items()
    }


def dates_as_text(value: Any) -> Any:
    """Return a TOML value in which dates of fields named `from` (as in a warm-up) are strings; other dates stay."""
    if isinstance(value, list):
        return [dates_as_text(item) for item in value]
    if isinstance(value, dict):
        return {
            name: item.isoformat() if name == "from" and type(item) is datetime.date else dates_as_text(item)
            for name, item in value.items()
        }
    return value


def _read_webhook_secret(text: str) -> str:
    if not secret_size(text):
        raise ValueError(f"expected {SECRET_PREFIX} followed by base64")
    return text


def _read_events(events: list[str]) -> tuple[str, ...]:
    try:
        return validate_events(events)
    except InvalidRequest as refusal:
        raise ValueError(refusal.message) from None


def _read_format(text: str) -> str:
    try:
        check_format(text)
    except InvalidRequest as refusal:
        raise ValueError(refusal.message) from None
    return text


_ABSENT: Any = msgspec.UNSET  # field not present in the file


class _Table(msgspec.Struct):
    """Base class of the setup file's tables; fields without a default are required."""


# -- carriers ----------------------------------------------------------------------------------------------


class _Carrier(_Table):
    id: Annotated[str, matching("[a-z0-9-]{1,64}", "an id of a-z, 0-9 and -")]
    channel: records.Channel
    kind: str
    countries: Annotated[
        list[CountryOrAny], Label("Countries", "ISO codes such as GB, DE, or * for all.", advanced=True)
    ] = _ABSENT
    enabled: bool = _ABSENT
    priority: Annotated[int, in_range(-records.PRIORITY_MAX, records.PRIORITY_MAX)] = _ABSENT


def _parse_carrier(
    supported: Collection[CarrierKind], fields: dict[str, Any], existing: Mapping[str, CarrierKind]
) -> dict[str, Any]:
    current_kind = existing.get(str(fields.get("id")))
    if current_kind:
        fields = {"channel": current_kind[0], "kind": current_kind[1]} | fields
    identity = convert_value({field: fields[field] for field in ("id", "channel", "kind") if field in fields}, _Carrier)
    kind = identity["channel"], identity["kind"]
    if kind not in CARRIER_KINDS:
        kinds = [k for c, k in CARRIER_KINDS if c == kind[0]]
        raise InvalidValue(
            "kind", f"{quoted(kind[1])} is not a carrier kind for {kind[0]}. Known kinds: {', '.join(kinds)}"
        )
    if kind not in supported:
        usable = " or ".join(repr(k) for c, k in sorted(supported) if c == kind[0])
        raise InvalidValue("kind", f"{kind[1]!r} is not supported by this version; use {usable}")
    parsed = convert_value(fields, _table_type(kind, is_partial=kind == current_kind))
    options = {field: parsed.pop(field) for field in option_names(kind) if field in parsed}
    return {**parsed, "options": options}


def _table_type(kind: CarrierKind, *, is_partial: bool) -> type[msgspec.Struct]:
    """Return the struct type of a carrier's table; with `is_partial`, no field is required."""
    fields = [*msgspec.structs.fields(_Carrier), *msgspec.structs.fields(CARRIER_KINDS[kind])]
    required = {field_info.name for field_info in fields if field_info.required and not is_partial}
    absent: dict[str, Any] = {"default": _ABSENT}
    return msgspec.defstruct(
        kind[1],
        [
            (
                field_info.name,
                _without_none(field_info.type),
                field(name=field_info.encode_name, **({} if field_info.name in required else absent)),
            )
            for field_info in fields
        ],
        kw_only=True,
    )


def _without_none(type_: Any) -> Any:
    """Remove None from a field's type, because a setup file cannot contain it."""
    bare = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    return get_args(bare)[0] if get_origin(bare) in (Union, UnionType) else type_


def carrier_fields(kind: CarrierKind) -> list[msgspec.structs.FieldInfo]:
    """Return the options of the carrier kind as fields and, except for email, `countries`."""
    countries = [
        field_info
        for field_info in msgspec.structs.fields(_Carrier)
        if field_info.name == "countries" and kind[0] != "email"
    ]
    return [*msgspec.structs.fields(CARRIER_KINDS[kind]), *countries]


# -- the file ----------------------------------------------------------------------------------------------


class _Platform(_Table):
    sender: Annotated[str, parse_with(lambda raw: read_email(raw).original)] = _ABSENT
    brand: Line = _ABSENT
    verify_price: dict[Currency, Money] = _ABSENT
    verify_text: dict[Language, Annotated[str, parse_with(lambda text: check_line(check_text(text)))]] = _ABSENT
    dkim_zone: Domain = _ABSENT
    dkim_rotate_days: Count = _ABSENT
    mail_host: Domain = _ABSENT
    templates_need_approval: bool = _ABSENT
    prices: dict[Literal["sms", "whatsapp"], dict[Currency, dict[CountryOrAny, Money]]] = _ABSENT
    sandbox_per_day: Count = _ABSENT
    log_requests_per_second: Annotated[int, in_range(0, 100)] = _ABSENT
    compat_hosts: dict[Domain, records.CompatService] = _ABSENT
    attachment_types: list[FileType] = _ABSENT
    portal_origins: Origins = _ABSENT


class _Verify(_Table):
    countries: list[CountryOrAny] = _ABSENT
    per_phone_10m: Count = _ABSENT
    per_phone_day: Count = _ABSENT
    per_prefix_10m: Count = _ABSENT
    min_interval_s: Count = _ABSENT
    wrong_per_phone_day: Count = _ABSENT
    conversion_guard: bool = _ABSENT
    magic: bool = _ABSENT
    inbox: bool = _ABSENT
    language: Language = _ABSENT
    webotp: Annotated[str, parse_with(lambda raw: read_domain(raw) if raw else "")] = _ABSENT
    channels: Annotated[list[records.Channel], parse_with(require_items)] = _ABSENT


class _OptOut(_Table):
    words: Annotated[list[Line], parse_with(require_items)] = _ABSENT
    start_words: Annotated[list[Line], parse_with(require_items)] = _ABSENT
    stop_text: OptionalLine = _ABSENT
    start_text: OptionalLine = _ABSENT
    help_text: OptionalLine = _ABSENT


class _DisplayName(_Table, kw_only=True):
    id: Annotated[str, id_with_prefix("dn_")] = _ABSENT
    name: Line
    approved: bool = _ABSENT


class _SendingDomain(_Table, kw_only=True):
    id: Annotated[str, id_with_prefix("dom_")] = _ABSENT
    name: Domain
    brand: Line = _ABSENT
    dkim: records.DkimMethod = _ABSENT
    private_key: str = _ABSENT
    selector: str = _ABSENT
    verified: bool = _ABSENT
    approved: bool = _ABSENT
    display_names: list[_DisplayName] = _ABSENT


class _Layout(_Table):
    id: Annotated[str, id_with_prefix("lay_")] = _ABSENT
    name: Line = _ABSENT
    status: records.Status = _ABSENT
    html: Html = _ABSENT
    text: str = _ABSENT


class _Variable(_Table):
    name: str
    list: Names = _ABSENT
    max: Annotated[int, in_range(1, LIST_ITEMS_MAX)] = _ABSENT
    max_length: Annotated[int, in_range(1, MAX_LENGTH_LIMIT)] = _ABSENT


class _LocaleParts(_Table):
    subject: str = _ABSENT
    html: Html = _ABSENT
    text: str = _ABSENT
    body: str = _ABSENT
    language: TemplateLanguage = _ABSENT
    upstream_name: Line = _ABSENT


class _Template(_Table):
    id: Annotated[str, id_with_prefix("tpl_")] = _ABSENT
    channel: records.Channel = _ABSENT
    name: Line = _ABSENT
    status: records.Status = _ABSENT
    subject: str = _ABSENT
    html: Html = _ABSENT
    text: str = _ABSENT
    body: str = _ABSENT
    category: Annotated[str, parse_with(lambda text: text or None)] = _ABSENT
    language: TemplateLanguage = _ABSENT
    upstream_name: Line = _ABSENT
    variables: list[str | _Variable] = _ABSENT
    locale: Locale = _ABSENT
    locales: Annotated[dict[str, _LocaleParts], parse_with(read_locales)] = _ABSENT
    timezone: Line = _ABSENT
    layout: Annotated[str, LAYOUT_ID] = _ABSENT
    optional: list[str] = _ABSENT
    price: Money = _ABSENT
    prices: dict[Country, Money] = _ABSENT
    examples: dict[str, str] = _ABSENT
    validity_minutes: Annotated[int, in_range(0, 2880)] = _ABSENT
    priority: records.Priority = _ABSENT


class _Key(_Table):
    name: Line
    token: Annotated[str, parse_with(read_token)] = _ABSENT
    domain: Domain = _ABSENT
    scopes: Annotated[list[records.Scope], parse_with(require_items)] = _ABSENT
    networks: list[Network] = _ABSENT
    passthrough: Passthrough = _ABSENT
    hook: bool = _ABSENT
    restrictions: RestrictionFields = _ABSENT


class _Webhook(_Table):
    url: Annotated[str, parse_with(read_webhook_url)]
    secret: Annotated[str, parse_with(_read_webhook_secret)] = _ABSENT
    events: Annotated[list[str], parse_with(_read_events)] = _ABSENT
    format: Annotated[str, parse_with(_read_format)] = _ABSENT


class _Suppression(_Table):
    email: Annotated[str, parse_with(read_suppressed)]
    reason: Literal["bounce", "complaint", "manual"] = _ABSENT


class _RecipientTable(_Table):
    address: Annotated[str, parse_with(read_recipient)]


class _SenderId(_Table):
    country: Country
    value: Annotated[str, matching(SENDER_PATTERN, "a sender of at most 11 letters and digits, or a number")] = _ABSENT
    approved: bool = _ABSENT


class _Inbound(_Table):
    address: Annotated[str, parse_with(read_inbound)]


class _Team(_Table):
    id: Annotated[str, id_with_prefix("team_")]
    name: Line = _ABSENT
    mode: records.Mode = _ABSENT
    suspended: bool = _ABSENT
    currency: Currency = _ABSENT
    credit: Money = _ABSENT
    email_quota: Count = _ABSENT
    features: list[Literal["verify"]] = _ABSENT
    rate_limit: Count = _ABSENT
    segmenting: records.Segmenting = _ABSENT
    verify: _Verify = _ABSENT
    opt_out: _OptOut = _ABSENT
    marketing_per_day: Count = _ABSENT
    credit_low: Money = _ABSENT
    octets_per_day: Count = _ABSENT
    domains_max: Count = _ABSENT
    keep_content_days: Annotated[int, in_range(1, records.KEEP_CONTENT_DAYS_MAX)] = _ABSENT
    keep_messages_days: Annotated[int, in_range(1, records.KEEP_MESSAGES_DAYS_MAX)] = _ABSENT
    passthrough: Passthrough = _ABSENT
    catch: bool = _ABSENT
    test_clock: bool = _ABSENT
    attachment_types: list[FileType] = _ABSENT
    pool: Annotated[str, POOL_NAME] = _ABSENT
    categories: Categories = _ABSENT
    approval_hours: Annotated[int, in_range(1, records.APPROVAL_HOURS_MAX)] = _ABSENT
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


read_platform_fields = partial(_parse_fields, _Platform)
read_team_fields = partial(_parse_fields, _Team)
read_layout_fields = partial(_parse_fields, _Layout)
read_template_fields = partial(_parse_fields, _Template)
read_sender_id_fields = partial(_parse_fields, _SenderId)
