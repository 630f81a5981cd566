import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.refusals import InvalidApiKey, WrongCell
from heliograph.domain.setup.keys import (
    authenticate,
    cell_of,
    checksum,
    has_hash,
    make_token,
    parse_token,
    token_hash,
)
from heliograph.domain.setup.records import Caller, Key, Team, TeamRecord

TOKEN = make_token(bytes(range(64)))
PUBLIC = TOKEN[3:13]
KEY = Key(id=PUBLIC, team="team_a", name="server", hash=token_hash(TOKEN))
NOW = 1_794_735_000_000


def with_checksum(text: str) -> str:
    return text + checksum(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "000000"),  # CRC-32 0, padded
        ("123456789", "3jZRME"),  # CRC-32's check value 0xCBF43926
    ],
)
def test_token_checksum_matches_the_reference(text: str, expected: str) -> None:
    assert checksum(text) == expected


@settings(max_examples=40, database=None)
@given(st.binary(min_size=64, max_size=64))
def test_made_tokens_are_well_formed(entropy: bytes) -> None:
    token = make_token(entropy)
    assert re.fullmatch(r"hk_[0-9A-Za-z]{10}_[0-9A-Za-z]{43}[0-9A-Za-z]{6}", token)
    assert token[-6:] == checksum(token[:-6])
    assert parse_token(token) == token[3:13]


def test_tokens_differ_with_their_randomness() -> None:
    assert len({make_token(i.to_bytes(64)) for i in range(100)}) == 100


def test_token_from_too_few_random_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="64 random bytes"):
        make_token(b"x" * 63)


MALFORMED = [
    "",
    "hk_",
    TOKEN[:-1],
    TOKEN + "0",
    TOKEN + "\n",
    " " + TOKEN,
    TOKEN.replace("hk_", "sk_", 1),
    TOKEN.upper(),
    TOKEN[:-1] + ("0" if TOKEN[-1] != "0" else "1"),  # checksum
    TOKEN[:20] + ("0" if TOKEN[20] != "0" else "1") + TOKEN[21:],  # a typing error in the secret
    with_checksum(TOKEN[:12] + "é" + TOKEN[13:-6]),
    with_checksum(TOKEN[:13] + "-" + TOKEN[14:-6]),
]


@pytest.mark.parametrize("text", MALFORMED)
def test_token_malformed_is_not_parsed(text: str) -> None:
    assert parse_token(text) is None


def test_token_hash_is_sha256_and_verifies() -> None:
    assert token_hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert has_hash("abc", token_hash("abc"))
    assert not has_hash("abd", token_hash("abc"))


def callers(keys: dict[str, Key]) -> dict[str, Caller]:
    team = Team(record=TeamRecord(ref=1, id="team_a", name="A"))
    return {public: Caller(team=team, key=key) for public, key in keys.items()}


def changed(**fields: object) -> Key:
    return msgspec.structs.replace(KEY, **fields)


@pytest.mark.parametrize("key", [KEY, changed(expires_at=NOW + 1)])
def test_token_of_an_active_key_authenticates(key: Key) -> None:
    assert authenticate(TOKEN, callers({PUBLIC: key}), NOW).key is key


@pytest.mark.parametrize(
    ("token", "keys"),
    [
        *[(token, {PUBLIC: KEY}) for token in MALFORMED],
        (TOKEN, {}),
        (with_checksum(TOKEN[:14] + "0" * 43), {PUBLIC: KEY}),  # right id, wrong secret
        (TOKEN, {PUBLIC: changed(revoked=True)}),
        (TOKEN, {PUBLIC: changed(expires_at=NOW)}),
    ],
)
def test_every_bad_key_is_refused_alike(token: str, keys: dict[str, Key]) -> None:
    with pytest.raises(InvalidApiKey) as refused:
        authenticate(token, callers(keys), NOW)
    assert (refused.value.message, refused.value.param, refused.value.details) == (
        InvalidApiKey().message,
        None,
        None,
    )


CELL_TOKEN = make_token(bytes(range(64)), "cell_01")
CELL_KEY = changed(id=f"cell_01_{PUBLIC}", hash=token_hash(CELL_TOKEN))


def test_token_of_a_cell_has_its_name_in_the_public_id() -> None:
    assert CELL_TOKEN.startswith(f"hk_cell_01_{PUBLIC}_") and CELL_TOKEN[-49:-6] == TOKEN[-49:-6]
    assert parse_token(CELL_TOKEN) == CELL_KEY.id
    assert [cell_of(id_) for id_ in (CELL_KEY.id, PUBLIC)] == ["cell_01", ""]


@pytest.mark.parametrize("cell", ["cell-01", "1", "_", "a_", "A", "a" * 64, "ä"])
def test_token_of_something_that_is_no_cell_is_not_parsed(cell: str) -> None:
    assert parse_token(with_checksum(f"hk_{cell}_{TOKEN[3:-6]}")) is None


def test_key_of_a_cell_authenticates_in_its_cell() -> None:
    known = callers({CELL_KEY.id: CELL_KEY, PUBLIC: KEY})
    assert authenticate(CELL_TOKEN, known, NOW, "cell_01").key is CELL_KEY
    assert authenticate(TOKEN, known, NOW, "cell_01").key is KEY  # made before the installation was a cell
    assert authenticate(CELL_TOKEN, known, NOW, "cell_02").key is CELL_KEY  # copied with its cell


def test_unknown_key_of_another_cell_is_refused_with_the_name_of_its_cell() -> None:
    with pytest.raises(WrongCell) as refused:
        authenticate(CELL_TOKEN, callers({}), NOW, "cell_02")
    assert refused.value.details == {"cell": "cell_01"}


@pytest.mark.parametrize(
    ("token", "cell"),
    [
        (CELL_TOKEN, "cell_01"),  # revoked and deleted
        (CELL_TOKEN, ""),  # outside cells, such a token is malformed
        (TOKEN, "cell_01"),
        (CELL_TOKEN[:-1] + ("0" if CELL_TOKEN[-1] != "0" else "1"), "cell_02"),
    ],
)
def test_unknown_key_is_refused_as_invalid_in_its_own_cell_and_outside_cells(token: str, cell: str) -> None:
    with pytest.raises(InvalidApiKey):
        authenticate(token, callers({}), NOW, cell)


def test_revoked_key_of_another_cell_that_is_known_here_is_refused_as_invalid() -> None:
    with pytest.raises(InvalidApiKey):
        authenticate(CELL_TOKEN, callers({CELL_KEY.id: changed(id=CELL_KEY.id, revoked=True)}), NOW, "cell_02")
