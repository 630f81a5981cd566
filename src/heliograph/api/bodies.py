"""Strict JSON (contract 1) and its shape: bytes → value → typed request, each with one clear error."""

import json
import re
from collections import Counter
from math import isinf
from typing import Any, NoReturn, TypeVar

import msgspec

from heliograph.rules.limits import JSON_DEPTH_MAX, JSON_VALUES_MAX
from heliograph.rules.refusals import InvalidJson, InvalidRequest
from heliograph.rules.shape import Misfit, read

T = TypeVar("T")

PARAM_MAX = 1000  # characters of a field's name in an error


def parse_json(raw: bytes) -> Any:
    if len(raw) > JSON_VALUES_MAX and _has_many_values(raw):
        raise InvalidJson(f"The body has more than {JSON_VALUES_MAX} values. {InvalidJson.fix}")
    try:
        value = _decoder.decode(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidJson(f"The body is not UTF-8. {InvalidJson.fix}") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise InvalidJson(f"The body is not JSON: {error}. {InvalidJson.fix}") from None
    # Few brackets cannot nest deeply and no escapes cannot hide surrogates: most bodies skip both walks.
    if raw.count(b"{") + raw.count(b"[") > JSON_DEPTH_MAX and _depth(value) > JSON_DEPTH_MAX:
        raise _too_deep()
    if b"\\u" in raw:
        _check_escapes(value)
    return value


def to_request(value: Any, kind: type[T]) -> T:
    """The typed request; unknown fields are refused."""
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.")
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
        why = error.why.replace("a table", "an object")  # as JSON calls it
        return InvalidRequest(f"{shown}: {why}. {InvalidRequest.fix}", param=shown)
    return InvalidRequest()


def _has_many_values(raw: bytes) -> bool:
    """Before the decoder, which holds the interpreter's lock until it has read all of them, also in a thread."""
    if _marks(raw, 0, len(raw)) < JSON_VALUES_MAX:
        return False
    count, at = 0, 0
    for string in _STRING.finditer(raw):  # a text may hold as many commas as it likes
        count += _marks(raw, at, string.start())
        if count >= JSON_VALUES_MAX:
            return True
        at = string.end()
    return count + _marks(raw, at, len(raw)) >= JSON_VALUES_MAX


def _marks(raw: bytes, start: int, end: int) -> int:
    """There is a comma or a bracket for each value but the first."""
    return sum(raw.count(mark, start, end) for mark in (b",", b"[", b"{"))


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
    if isinf(value):  # 1e400 would be an Infinity that never was written
        raise ValueError("a number is too large")
    return value


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)


def _too_deep() -> InvalidJson:
    return InvalidJson(f"The body is nested deeper than {JSON_DEPTH_MAX}. {InvalidJson.fix}")


def _depth(value: Any) -> int:
    """Objects and lists inside each other, the outermost is 1; level by level, to spare the stack."""
    values, depth = [value], 0
    while (level := [item for item in values if isinstance(item, dict | list)]) and depth <= JSON_DEPTH_MAX:
        depth += 1
        values = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def _check_escapes(value: Any) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str):
            if _SURROGATE.search(item):
                raise InvalidJson(f"The body has a lone surrogate. {InvalidJson.fix}")
            if "\0" in item:
                raise InvalidRequest("The body has a null character. Remove it.")


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
