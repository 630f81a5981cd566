"""Parses JSON strictly (contract 1) and converts it to typed requests; each kind of error has its own message."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from math import isinf
from typing import Any, NoReturn, TypeVar

import msgspec

from heliograph.domain.limits import JSON_DEPTH_MAX, JSON_VALUES_MAX, MIB, PARSE_IN_THREAD_MIN
from heliograph.domain.mail.smtp_to_request import SubmittedMail
from heliograph.domain.refusals import InvalidJson, InvalidRequest
from heliograph.domain.validation import InvalidValue, convert_value
from heliograph.web.incremental_json import STEP_BYTES, parse_in_steps

T = TypeVar("T")

PARAM_MAX = 1000  # maximum characters of a field name in an error message
LARGE_BODY = 4 * MIB  # larger bodies are always parsed in steps


class NoFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The empty body of a request without fields."""


def parse_json(raw: bytes, path: str = "") -> Any:
    """Parse strict JSON and refuse null characters, except in fields that are checked for them later.

    `path`: the field that contains `raw`, for error messages.
    """
    value = parse_fast(raw)
    if b"\\" in raw and b"\\u0000" in raw:
        _refuse_nulls(value, path)
    return value


def parse_fast(raw: bytes) -> Any:
    """Parse JSON with msgspec; if its result may be wrong, parse with the slower strict parser (ADR 0009)."""
    if len(raw) > LARGE_BODY or (len(raw) > PARSE_IN_THREAD_MIN and _count_separators(raw) >= JSON_VALUES_MAX):
        return parse_in_steps(raw, parse_strict)
    try:
        value = msgspec.json.decode(raw)
        # msgspec accepts a repeated key and keeps its last value; the result then has fewer keys than `raw` has `":`.
        if _count_keys((value,)) == _count_key_ends(raw):
            return value
    except (ValueError, RecursionError):
        pass
    return parse_strict(raw) if len(raw) <= PARSE_IN_THREAD_MIN else parse_in_steps(raw, parse_strict)


def parse_strict(raw: bytes) -> Any:
    """Parse JSON as strictly as the contract requires, with a specific message for each error; slower than msgspec."""
    try:
        value = _decoder.decode(raw.decode("utf-8"))
        _count_keys((value,))
    except UnicodeDecodeError:
        raise InvalidJson(f"The body is not UTF-8. {InvalidJson.fix}") from None
    except RecursionError:
        raise InvalidJson(f"The body is nested deeper than {JSON_DEPTH_MAX}. {InvalidJson.fix}") from None
    except ValueError as error:
        raise InvalidJson(f"The body is not JSON: {error}. {InvalidJson.fix}") from None
    if b"\\u" in raw:
        _refuse_surrogates(value)
    return value


def to_request(value: Any, kind: type[T]) -> T:
    """Convert a JSON object to the request type `kind`; refuse unknown fields."""
    if not isinstance(value, dict):
        raise InvalidRequest("The body is not a JSON object. Send a JSON object.")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise _conversion_refusal(value, kind) from None


def _conversion_refusal(value: dict[str, Any], kind: Any) -> InvalidRequest:
    try:
        convert_value(value, kind)
    except InvalidValue as error:
        param = error.path if error.path in value else error.path.partition("[")[0]
        short_param = param if len(param) <= PARAM_MAX else f"{param[:PARAM_MAX]}…"
        reason = error.reason.replace("a table", "an object")  # JSON's term
        return InvalidRequest(f"{short_param}: {reason}. {InvalidRequest.fix}", param=short_param)
    return InvalidRequest()


def _object_from_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        repeated = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {repeated[:80]!r} is repeated")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _parse_float(text: str) -> float:
    value = float(text)
    if isinf(value):  # 1e400 would become Infinity
        raise ValueError("a number is too large")
    return value


_decoder = json.JSONDecoder(
    object_pairs_hook=_object_from_pairs, parse_constant=_refuse_constant, parse_float=_parse_float
)


def _count_keys(values: Iterable[Any], depth: int = 0) -> int:
    """Return the number of keys in all nested objects. Raises RecursionError if nested deeper than JSON_DEPTH_MAX."""
    if depth > JSON_DEPTH_MAX:
        raise RecursionError
    count = 0
    for value in values:
        if type(value) is dict:
            count += len(value) + _count_keys(value.values(), depth + 1)
        elif type(value) is list:
            count += _count_keys(value, depth + 1)
    return count


def _count_separators(raw: bytes) -> int:
    """Return the number of `,`, `[` and `{` bytes. The JSON text has at most one value more than these."""
    return sum(raw.count(separator) for separator in (b",", b"[", b"{"))


def _count_key_ends(raw: bytes) -> int:
    """Return the number of `":` sequences.

    Counts in steps so that other threads can run. Each step ends at a quote, so that it splits no sequence.
    """
    count, position = 0, 0
    while (end := raw.find(b'"', position + STEP_BYTES)) >= 0:
        count += len(_KEY_END.findall(raw, position, end))
        position = end
    return count + len(_KEY_END.findall(raw, position))


def _refuse_surrogates(value: Any) -> None:
    pending_values = [value]
    while pending_values:
        item = pending_values.pop()
        if isinstance(item, dict):
            pending_values += item.keys()
            pending_values += item.values()
        elif isinstance(item, list):
            pending_values += item
        elif isinstance(item, str) and _SURROGATE.search(item):
            raise InvalidJson(f"The body has a lone surrogate. {InvalidJson.fix}")


def _refuse_nulls(value: Any, path: str) -> None:
    """Refuse null characters, which PostgreSQL cannot store in text columns."""
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_nulls(key, path)
            _refuse_nulls(item, (f"{path}.{key[:PARAM_MAX]}" if path else key)[:PARAM_MAX])
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_nulls(item, f"{path}[{index}]"[:PARAM_MAX])
    elif isinstance(value, str) and "\0" in value and not _PATHS_CHECKED_LATER.match(path):
        raise InvalidRequest(f"{path or 'The body'} has a null character. Remove it.", param=path or None)


_KEY_END = re.compile(rb'"\s*+:')
# Paths of the fields of a send request that are checked for control characters later.
_PATHS_CHECKED_LATER = re.compile(
    r"((messages)?\[\d+\]\.)?((subject|from|to|cc|bcc|reply_to|headers)\b|attachments\[\d+\]\.filename\Z)"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def submitted_fields(submitted: SubmittedMail) -> dict[str, Any]:
    """Convert a mail submitted by SMTP to the fields of a POST /v1/emails body."""
    fields = dict(submitted.request)
    for name, text in submitted.json_fields.items():
        try:
            value = parse_json(text.encode(), name)
        except InvalidJson as error:
            raise InvalidRequest(f"The header for {name} is not JSON: {error.message}", param=name) from None
        fields[name] = fields[name] | value if name in fields and isinstance(value, dict) else value
    return fields
