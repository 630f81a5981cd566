"""Setup file (contract 14): parses and validates an operator's file.

Nothing is compared with the store here; `plan.py` decides what the file changes.
"""

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
from heliograph.domain.setup.values import (
    LAYOUT,
    SENDER,
    Answer,
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
    Passthrough,
    TemplateLanguage,
    between,
    id_like,
    like,
    read_domain,
    read_email,
    read_inbound,
    read_locales,
    read_recipient,
    read_some,
    read_suppressed,
    read_token,
    read_webhook_url,
)
from heliograph.domain.text import line, quoted
from heliograph.domain.validation import Misfit, form, read, read_at
from heliograph.domain.verify.verify_text import check_text
from heliograph.templates.policy.check import LENGTH_MAX, LIST_MAX
from heliograph.webhooks.policy.webhook import SECRET_PREFIX, check_format, checked_events, secret_size


class SetupError(Exception):
    """The setup file is invalid and changes nothing; the message names file, line or key path."""

    def __init__(self, message: str, problems: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)  # problems of the invalid template, as `apply --json` reports them


class SetupFile(msgspec.Struct, frozen=True, kw_only=True):
    """Parsed setup file, with the names of the file; fields absent in the file are absent here."""

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
    """Parse a setup file; raise an error with the position of the problem.

    `runnable` are the carrier kinds that this version supports; `known` are the existing carriers by id. For an
    existing carrier the file may contain only some of the fields.
    """
    try:
        given = _with_environment("", tomllib.loads(text), environment)
        document = read(given, _Document)
        for i, carrier in enumerate(document.get("carriers", [])):
            document["carriers"][i] = read_at(f"carriers[{i}]", carrier, known, partial(_read_carrier, runnable))
        return SetupFile(name=name, **document)
    except (ValueError, RecursionError) as error:
        # The error names the path of an invalid value, the line of a TOML error, or excessive numbers or nesting.
        raise SetupError(f"{name}: {error}") from None


def _read_fields(table: type["_Table"], given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Parse single fields of a table, as a form submits them; return the valid values and the errors of the others."""
    kinds = {one.encode_name: one.type for one in msgspec.structs.fields(table)}
    fields, errors = {}, {}
    for name, value in given.items():
        try:
            fields[name] = read(value, kinds[name])
        except ValueError as error:
            errors[name] = str(error)
    return fields, errors


def values_from_environment(text: str, environment: Mapping[str, str]) -> frozenset[str]:
    """Return the values of all `{ env = "NAME" }` in a setup file: secrets that need not be shown again."""

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


def _with_environment(path: str, value: Any, environment: Mapping[str, str]) -> Any:
    """Replace every `{ env = "NAME" }` by the variable's value, so that secrets need not be in the file."""
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


def _read_webhook_secret(given: str) -> str:
    if not secret_size(given):
        raise ValueError(f"expected {SECRET_PREFIX} and base64 after it")
    return given


def _read_events(given: list[str]) -> tuple[str, ...]:
    try:
        return checked_events(given)
    except InvalidRequest as refusal:
        raise ValueError(refusal.message) from None


def _read_format(given: str) -> str:
    try:
        check_format(given)
    except InvalidRequest as refusal:
        raise ValueError(refusal.message) from None
    return given


_ABSENT: Any = msgspec.UNSET  # field not present in the file


class _Table(msgspec.Struct):
    """Base class of tables in the file; fields without a default are required."""


# -- carriers ----------------------------------------------------------------------------------------------


class _Carrier(_Table):
    id: Annotated[str, like("[a-z0-9-]{1,64}", "an id of a-z, 0-9 and -")]
    channel: records.Channel
    kind: str
    countries: Annotated[
        list[CountryOrAny], Label("Countries", "ISO codes such as GB, DE, or * for all.", more=True)
    ] = _ABSENT
    enabled: bool = _ABSENT
    priority: Annotated[int, between(-records.PRIORITY_MAX, records.PRIORITY_MAX)] = _ABSENT


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
    found = read(given, _table_of(kind, part=kind == before))
    options = {field: found.pop(field) for field in option_names(kind) if field in found}
    return {**found, "options": options}


def _table_of(kind: CarrierKind, *, part: bool) -> type[msgspec.Struct]:
    """Return a struct type for a carrier of the kind; with `part` no field is required."""
    fields = [*msgspec.structs.fields(_Carrier), *msgspec.structs.fields(CARRIER_KINDS[kind])]
    needed = {one.name for one in fields if one.required and not part}
    absent: dict[str, Any] = {"default": _ABSENT}
    return msgspec.defstruct(
        kind[1],
        [
            (one.name, _written(one.type), field(name=one.encode_name, **({} if one.name in needed else absent)))
            for one in fields
        ],
        kw_only=True,
    )


def _written(type_: Any) -> Any:
    """Remove None from a type: unset values are not in the file."""
    bare = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    return get_args(bare)[0] if get_origin(bare) in (Union, UnionType) else type_


def carrier_fields(kind: CarrierKind) -> list[msgspec.structs.FieldInfo]:
    """Return the fields of the carrier kind and, except for email, `countries`."""
    countries = [one for one in msgspec.structs.fields(_Carrier) if one.name == "countries" and kind[0] != "email"]
    return [*msgspec.structs.fields(CARRIER_KINDS[kind]), *countries]


# -- the file ----------------------------------------------------------------------------------------------


class _Platform(_Table):
    sender: Annotated[str, form(lambda given: read_email(given).given)] = _ABSENT
    brand: Line = _ABSENT
    verify_price: dict[Currency, Money] = _ABSENT
    verify_text: dict[Language, Annotated[str, form(lambda given: line(check_text(given)))]] = _ABSENT
    mail_host: Domain = _ABSENT
    templates_need_approval: bool = _ABSENT
    prices: dict[Literal["sms", "whatsapp"], dict[Currency, dict[CountryOrAny, Money]]] = _ABSENT
    sandbox_per_day: Count = _ABSENT
    log_requests_per_second: Annotated[int, between(0, 100)] = _ABSENT
    compat_hosts: dict[Domain, records.Foreign] = _ABSENT
    attachment_types: list[FileType] = _ABSENT


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
    webotp: Annotated[str, form(lambda given: read_domain(given) if given else "")] = _ABSENT
    channels: Annotated[list[records.Channel], form(read_some)] = _ABSENT


class _OptOut(_Table):
    words: Annotated[list[Line], form(read_some)] = _ABSENT
    start_words: Annotated[list[Line], form(read_some)] = _ABSENT
    stop_text: Answer = _ABSENT
    start_text: Answer = _ABSENT
    help_text: Answer = _ABSENT


class _DisplayName(_Table, kw_only=True):
    id: Annotated[str, id_like("dn_")] = _ABSENT
    name: Line
    approved: bool = _ABSENT


class _SendingDomain(_Table, kw_only=True):
    id: Annotated[str, id_like("dom_")] = _ABSENT
    name: Domain
    brand: Line = _ABSENT
    verified: bool = _ABSENT
    approved: bool = _ABSENT
    display_names: list[_DisplayName] = _ABSENT


class _Layout(_Table):
    id: Annotated[str, id_like("lay_")] = _ABSENT
    name: Line = _ABSENT
    status: records.Status = _ABSENT
    html: Html = _ABSENT
    text: str = _ABSENT


class _Variable(_Table):
    name: str
    list: Names = _ABSENT
    max: Annotated[int, between(1, LIST_MAX)] = _ABSENT
    max_length: Annotated[int, between(1, LENGTH_MAX)] = _ABSENT


class _LocaleParts(_Table):
    subject: str = _ABSENT
    html: Html = _ABSENT
    text: str = _ABSENT
    body: str = _ABSENT
    language: TemplateLanguage = _ABSENT
    upstream_name: Line = _ABSENT


class _Template(_Table):
    id: Annotated[str, id_like("tpl_")] = _ABSENT
    channel: records.Channel = _ABSENT
    name: Line = _ABSENT
    status: records.Status = _ABSENT
    subject: str = _ABSENT
    html: Html = _ABSENT
    text: str = _ABSENT
    body: str = _ABSENT
    category: Literal["AUTHENTICATION", "UTILITY", "MARKETING"] = _ABSENT
    language: TemplateLanguage = _ABSENT
    upstream_name: Line = _ABSENT
    variables: list[str | _Variable] = _ABSENT
    locale: Locale = _ABSENT
    locales: Annotated[dict[str, _LocaleParts], form(read_locales)] = _ABSENT
    timezone: Line = _ABSENT
    layout: Annotated[str, LAYOUT] = _ABSENT
    optional: list[str] = _ABSENT
    price: Money = _ABSENT
    prices: dict[Country, Money] = _ABSENT
    examples: dict[str, str] = _ABSENT
    validity_minutes: Annotated[int, between(0, 2880)] = _ABSENT
    priority: records.Priority = _ABSENT


class _Key(_Table):
    name: Line
    token: Annotated[str, form(read_token)] = _ABSENT
    domain: Domain = _ABSENT
    scopes: Annotated[list[records.Scope], form(read_some)] = _ABSENT
    networks: list[Network] = _ABSENT
    passthrough: Passthrough = _ABSENT
    hook: bool = _ABSENT


class _Webhook(_Table):
    url: Annotated[str, form(read_webhook_url)]
    secret: Annotated[str, form(_read_webhook_secret)] = _ABSENT
    events: Annotated[list[str], form(_read_events)] = _ABSENT
    format: Annotated[str, form(_read_format)] = _ABSENT


class _Suppression(_Table):
    email: Annotated[str, form(read_suppressed)]
    reason: Literal["bounce", "complaint", "manual"] = _ABSENT


class _RecipientTable(_Table):
    address: Annotated[str, form(read_recipient)]


class _SenderId(_Table):
    country: Country
    value: Annotated[str, like(SENDER, "a sender of at most 11 letters and digits, or a number")] = _ABSENT
    approved: bool = _ABSENT


class _Inbound(_Table):
    address: Annotated[str, form(read_inbound)]


class _Team(_Table):
    id: Annotated[str, id_like("team_")]
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
    keep_content_days: Annotated[int, between(1, records.KEEP_CONTENT_DAYS_MAX)] = _ABSENT
    keep_messages_days: Annotated[int, between(1, records.KEEP_MESSAGES_DAYS_MAX)] = _ABSENT
    passthrough: Passthrough = _ABSENT
    catch: bool = _ABSENT
    test_clock: bool = _ABSENT
    attachment_types: list[FileType] = _ABSENT
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
