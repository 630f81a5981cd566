"""What of a message is searched, the marks that it has, and lists of places."""

import random

import pytest

from heliograph.domain.search import trigrams
from heliograph.domain.search.trigrams import (
    SPAN,
    common,
    pack,
    read_search_text,
    read_searched,
    text_marks,
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
def test_is_found_and_has_all_marks_of_it(typed: str) -> None:
    needle = read_search_text(typed)
    assert needle and needle.is_in(ID, read_searched(RECORD))
    has = text_marks(RECORD) | {*trigrams.tail_marks(ID)}
    assert any(has.issuperset(way) for way in needle.marks())


@pytest.mark.parametrize(
    "typed",
    ["hello@mail", "ada@example.com bobby", "__", "'", "\\", "x" * 5000, "7rt", "7rq7rt", "订到", "\ud800", "\u0308",
     "415-555-01001"],
)  # fmt: skip
def test_is_not_found(typed: str) -> None:
    needle = read_search_text(typed)
    assert needle and not needle.is_in(ID, read_searched(RECORD))


@pytest.mark.parametrize("typed", ["", "  ", "\0", "\u3000"])
def test_nothing_is_looked_for(typed: str) -> None:
    assert read_search_text(typed) is None


def test_a_needle_is_short() -> None:
    needle = read_search_text("ß" * 5000)
    assert needle and len(needle.text) == trigrams.NEEDLE_MAX


def test_the_sender_is_a_fact() -> None:
    assert read_searched(RECORD).domain == "mail.test"
    marks = trigrams.fact_marks(team=7, channel="email", key="k", domain="mail.test")
    assert marks == ["team:7", "channel:email", "key:k", "from:mail.test"]


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 4095, 4096])
def test_lists_of_places(count: int) -> None:
    places = sorted(random.Random(count).sample(range(SPAN), count))
    packed = pack(places)
    assert unpack(packed) == places
    assert len(packed) == min(2 * count, SPAN // 8)


@pytest.mark.parametrize(("a", "b", "c"), [(10, 4000, 4096), (300, 2000, 4096), (200, 250, 4096), (0, 4096, 10)])
def test_what_lists_have_in_common(a: int, b: int, c: int) -> None:
    chance = random.Random(a)
    sets = [set(chance.sample(range(SPAN), size)) for size in (a, b, c)]
    assert common(pack(sorted(one)) for one in sets) == sorted(set.intersection(*sets))
