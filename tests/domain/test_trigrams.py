"""Trigram search: the searched texts of a message, its index terms, and packed posting lists."""

import random

import pytest

from heliograph.domain.search import trigrams
from heliograph.domain.search.trigrams import (
    BLOCK_SIZE,
    decode_searched,
    intersect,
    pack,
    parse_query,
    text_terms,
    unpack,
)

RECORD = (
    '{"id":"eml_01K9ZZZZZZZZZZZZZZZZZZQ7RT","to":"Ada@Example.com","to_addresses":["Ada@Example.com","bob@shop.test"],'
    '"cc":["+14155550100"],"from":"Shop <hello@Mail.test>","subject":"Your  \\"new\\" Parcel Ü 订单到了 100%_"}'
)
ID = "eml_01K9ZZZZZZZZZZZZZZZZZZQ7RT"


@pytest.mark.parametrize(
    "typed",
    ["ada@", "EXAMPLE", "bob@shop.test", "parcel", '"new" p', 'your "n', "ü", "U\u0308", "订单", "到",
     "+1 (415) 555", "415-555-0100", "0%_", "%", "q7rt", "zzq7RT", " parcel  ü ", "pa",
     "parcel your", "bob parcel", "ada@example.com bob"],
)  # fmt: skip
def test_query_that_matches_has_all_its_trigrams_in_the_record(typed: str) -> None:
    needle = parse_query(typed)
    assert needle and needle.matches(ID, decode_searched(RECORD))
    present = text_terms(RECORD) | {*trigrams.id_tail_terms(ID)}
    assert any(present.issuperset(alternative) for alternative in needle.term_sets())


@pytest.mark.parametrize(
    "typed",
    ["hello@mail", "ada@example.com bobby", "__", "'", "\\", "x" * 5000, "7rt", "7rq7rt", "订到", "\ud800", "\u0308",
     "415-555-01001"],
)  # fmt: skip
def test_query_without_a_match_is_not_found(typed: str) -> None:
    needle = parse_query(typed)
    assert needle and not needle.matches(ID, decode_searched(RECORD))


@pytest.mark.parametrize("typed", ["", "  ", "\0", "\u3000"])
def test_query_without_searchable_text_is_ignored(typed: str) -> None:
    assert parse_query(typed) is None


def test_query_is_truncated_to_the_maximum_length() -> None:
    needle = parse_query("ß" * 5000)
    assert needle and len(needle.text) == trigrams.QUERY_MAX


def test_sender_is_searchable() -> None:
    assert decode_searched(RECORD).domain == "mail.test"
    marks = trigrams.property_terms(team=7, channel="email", key="k", domain="mail.test")
    assert marks == ["team:7", "channel:email", "key:k", "from:mail.test"]


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 4095, 4096])
def test_packed_positions_round_trip_and_stay_small(count: int) -> None:
    positions = sorted(random.Random(count).sample(range(BLOCK_SIZE), count))
    packed = pack(positions)
    assert unpack(packed) == positions
    assert len(packed) == min(2 * count, BLOCK_SIZE // 8)


@pytest.mark.parametrize(("a", "b", "c"), [(10, 4000, 4096), (300, 2000, 4096), (200, 250, 4096), (0, 4096, 10)])
def test_packed_positions_intersect_like_sets(a: int, b: int, c: int) -> None:
    chance = random.Random(a)
    sets = [set(chance.sample(range(BLOCK_SIZE), size)) for size in (a, b, c)]
    assert intersect(pack(sorted(item)) for item in sets) == sorted(set.intersection(*sets))
