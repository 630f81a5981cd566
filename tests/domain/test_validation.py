from typing import Annotated, Any, Literal

import msgspec
import pytest

from heliograph.domain.validation import InvalidValue, convert_value, parse_with


class Inner(msgspec.Struct):
    kind: Literal["a", "b"] = "a"
    maybe: Literal["a", "b"] | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1


class Outer(msgspec.Struct, kw_only=True):
    name: Annotated[str, parse_with(str.upper)]
    to: str | list[str] | None = None
    inner: list[Inner] = []
    map: dict[Annotated[str, msgspec.Meta(pattern=r"^[a-z]+\Z", description="small letters")], int] = {}
    from_: Any = msgspec.field(name="from", default=None)


def test_validated_value_keeps_absent_fields_absent() -> None:
    value = {"name": "x", "to": ["a"], "inner": [{}, {"count": 2}], "map": {"a": 1}, "from": [{"b": 1}]}
    assert convert_value(value, Outer) == value | {"name": "X"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "expected a table, got a whole number"),
        ({}, "name: is missing"),
        ({"name": "x", "from_": 1}, "from_: is an unknown field. Known fields: name, to, inner, map, from"),
        ({"name": None}, "name: expected a string, got null"),
        ({"name": "x", "to": 5}, "to: expected a string or a list or null, got a whole number"),
        ({"name": "x", "to": {}}, "to: expected a string or a list or null, got a table"),
        ({"name": "x", "to": ["a"] * 9 + [1.5, 5]}, "to[9]: expected a string, got a number"),
        ({"name": "x", "inner": [{}, {"kind": "c"}]}, "inner[1].kind: expected 'a' or 'b', got 'c'"),
        ({"name": "x", "inner": [{"maybe": "c"}]}, "inner[0].maybe: expected 'a' or 'b', got 'c'"),
        ({"name": "x", "inner": [{"kind": 1}]}, "inner[0].kind: expected a string, got a whole number"),
        ({"name": "x", "inner": [{"count": 0}]}, "inner[0].count: expected a whole number from 1 to 9, got 0"),
        ({"name": "x", "inner": [{"count": True}]}, "inner[0].count: expected a whole number, got true or false"),
        ({"name": "x", "map": {"a\n": 1}}, "map.a\n: expected small letters, got 'a\\n'"),
        ({"name": "x", "map": {"a": 1, "b": "2"}}, "map.b: expected a whole number, got a string"),
    ],
)
def test_validation_error_names_the_invalid_field(value: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        convert_value(value, Outer)
    assert str(refused.value) == message
