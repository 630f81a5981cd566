"""The code of a sandbox recipient: valid for one team, one address and a limited time."""

import pytest

from heliograph.domain.setup.recipient_code import VALID_MS, is_valid_code, recipient_code

KEY, TEAM, ADDRESS, NOW = b"k" * 32, "team_a", "me@example.com", 10 * VALID_MS
CODE = recipient_code(KEY, TEAM, ADDRESS, NOW)


@pytest.mark.parametrize("given", [CODE, CODE.lower(), CODE.replace("-", ""), f" {CODE} ", CODE.replace("-", " ")])
def test_recipient_code_is_accepted_in_any_spelling(given: str) -> None:
    assert is_valid_code(KEY, TEAM, ADDRESS, given, NOW)


@pytest.mark.parametrize(("later", "good"), [(VALID_MS, True), (2 * VALID_MS - 1, True), (2 * VALID_MS, False)])
def test_recipient_code_expires(later: int, good: bool) -> None:
    assert is_valid_code(KEY, TEAM, ADDRESS, CODE, NOW + later) is good


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
def test_recipient_code_is_bound_to_key_team_and_address(key: bytes, team: str, address: str, given: str) -> None:
    assert not is_valid_code(key, team, address, given, NOW)
