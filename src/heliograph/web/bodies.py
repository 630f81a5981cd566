"""Strict JSON parsing (contract 1) and validation: bytes → value → typed request, with one clear error per step."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from math import isinf
from typing import Any, NoReturn, TypeVar

import msgspec

from heliograph.domain.limits import IN_THREAD, JSON_DEPTH_MAX, JSON_VALUES_MAX, MIB
from heliograph.domain.mail.smtp_to_request import Submitted
from heliograph.domain.refusals import InvalidJson, InvalidRequest
from heliograph.domain.validation import Misfit, read
from heliograph.web.incremental_json import STEP, read_in_steps

T = TypeVar("T")

PARAM_MAX = 1000  # maximum characters of a field name in an error
LARGE = 4 * MIB  # bodies above this size are always parsed in steps


class NoFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The empty body of requests whose path holds all their input."""


def parse_json(raw: bytes, path: str = "") -> Any:
    """Parse strict JSON and refuse null characters, except in fields whose own validation handles them.

    `path` is the field that contains `raw`, for error messages.
    """
    value = read_quickly(raw)
    if b"\\" in raw and b"\\u0000" in raw:
        _refuse_nulls(value, path)
    return value


def read_quickly(raw: bytes) -> Any:
    """Parse JSON with msgspec if its result is certainly correct, else with the strict parser (ADR 0009)."""
    if len(raw) > LARGE or (len(raw) > IN_THREAD and _count_marks(raw) >= JSON_VALUES_MAX):
        return read_in_steps(raw, read_strictly)
    try:
        value = msgspec.json.decode(raw)
        # msgspec keeps the last of duplicate keys; the value then has fewer keys than the text has `":` sequences.
        if _count_keys((value,)) == _count_key_ends(raw):
            return value
    except (ValueError, RecursionError):
        pass
    return read_strictly(raw) if len(raw) <= IN_THREAD else read_in_steps(raw, read_strictly)


def read_strictly(raw: bytes) -> Any:
    """Parse JSON as strictly as the contract requires, with a specific error message; slower than msgspec."""
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
        raise InvalidRequest("This is not a JSON object. Send one.")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise _refusal(value, kind) from None


def _refusal(value: dict[str, Any], kind: Any) -> InvalidRequest:
    try:
        read(value, kind)
    except Misfit as error:
        param = error.path if error.path in value else error.path.partition("[")[0]
        shown = param if len(param) <= PARAM_MAX else f"{param[:PARAM_MAX]}…"
        why = error.why.replace("a table", "an object")  # JSON's term
        return InvalidRequest(f"{shown}: {why}. {InvalidRequest.fix}", param=shown)
    return InvalidRequest()


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice[:80]!r} is repeated")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _float(text: str) -> float:
    value = float(text)
    if isinf(value):  # 1e400 would become Infinity, which the client did not write
        raise ValueError("a number is too large")
    return value


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)


def _count_keys(values: Iterable[Any], depth: int = 0) -> int:
    """Return the number of keys of all nested objects. Raises RecursionError if nested deeper than JSON_DEPTH_MAX."""
    if depth > JSON_DEPTH_MAX:
        raise RecursionError
    count = 0
    for one in values:
        if type(one) is dict:
            count += len(one) + _count_keys(one.values(), depth + 1)
        elif type(one) is list:
            count += _count_keys(one, depth + 1)
    return count


def _count_marks(raw: bytes) -> int:
    """Return the number of `,`, `[` and `{` bytes; the JSON text has at most one more value than that."""
    return sum(raw.count(mark) for mark in (b",", b"[", b"{"))


def _count_key_ends(raw: bytes) -> int:
    """Return the number of `":` sequences. Counts in steps that end at a quote, so that no sequence is split."""
    count, at = 0, 0
    while (end := raw.find(b'"', at + STEP)) >= 0:
        count += len(_KEY_END.findall(raw, at, end))
        at = end
    return count + len(_KEY_END.findall(raw, at))


def _refuse_surrogates(value: Any) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and _SURROGATE.search(item):
            raise InvalidJson(f"The body has a lone surrogate. {InvalidJson.fix}")


def _refuse_nulls(value: Any, path: str) -> None:
    """Refuse null characters, which PostgreSQL cannot store in text columns."""
    if isinstance(value, dict):
        for key, one in value.items():
            _refuse_nulls(key, path)
            _refuse_nulls(one, (f"{path}.{key[:PARAM_MAX]}" if path else key)[:PARAM_MAX])
    elif isinstance(value, list):
        for number, one in enumerate(value):
            _refuse_nulls(one, f"{path}[{number}]"[:PARAM_MAX])
    elif isinstance(value, str) and "\0" in value and not _JUDGED.match(path):
        raise InvalidRequest(f"{path or 'The body'} has a null character. Remove it.", param=path or None)


_KEY_END = re.compile(rb'"\s*+:')
# Fields of a send request whose own validation forbids or removes control characters.
_JUDGED = re.compile(
    r"((messages)?\[\d+\]\.)?((subject|from|to|cc|bcc|reply_to|headers)\b|attachments\[\d+\]\.filename\Z)"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def submitted_fields(submitted: Submitted) -> dict[str, Any]:
    """Return the mail submitted by SMTP as the fields of a POST /v1/emails body."""
    fields = dict(submitted.request)
    for name, text in submitted.json.items():
        try:
            value = parse_json(text.encode(), name)
        except InvalidJson as error:
            raise InvalidRequest(f"The header for {name} is not JSON: {error.message}", param=name) from None
        fields[name] = fields[name] | value if name in fields and isinstance(value, dict) else value
    return fields
