"""The code of a sandbox recipient: for one team, one address and a while."""

import pytest

from heliograph.domain.setup.recipient_code import GOOD_MS, is_right_code, recipient_code

KEY, TEAM, ADDRESS, NOW = b"k" * 32, "team_a", "me@example.com", 10 * GOOD_MS
CODE = recipient_code(KEY, TEAM, ADDRESS, NOW)


@pytest.mark.parametrize("given", [CODE, CODE.lower(), CODE.replace("-", ""), f" {CODE} ", CODE.replace("-", " ")])
def test_typed_in_any_way(given: str) -> None:
    assert is_right_code(KEY, TEAM, ADDRESS, given, NOW)


@pytest.mark.parametrize(("later", "good"), [(GOOD_MS, True), (2 * GOOD_MS - 1, True), (2 * GOOD_MS, False)])
def test_good_for_a_while(later: int, good: bool) -> None:
    assert is_right_code(KEY, TEAM, ADDRESS, CODE, NOW + later) is good


@pytest.mark.parametrize(
    ("key", "team", "address", "given"),
    [
        (b"x" * 32, TEAM, ADDRESS, CODE),
        (KEY, "team_b", ADDRESS, CODE),
        (KEY, TEAM, "you@example.com", CODE),
        (KEY, TEAM, ADDRESS, ""),
        (KEY, TEAM, ADDRESS, CODE[:-1]),
        (KEY, TEAM, ADDRESS, "é" * 8),
    ],
)
def test_of_nobody_else(key: bytes, team: str, address: str, given: str) -> None:
    assert not is_right_code(key, team, address, given, NOW)
