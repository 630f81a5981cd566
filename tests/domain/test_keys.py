import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.refusals import InvalidApiKey
from heliograph.domain.setup.keys import authenticate, checksum, has_hash, make_token, parse_token, token_hash
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
