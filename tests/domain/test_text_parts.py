"""Multipart texts: in any order and with duplicates, each text is joined once and in order."""

import random

import msgspec
import pytest

from heliograph.carriers.sms.smpp.text import encode_text
from heliograph.domain.delivery.outcome import IncomingText, TextPart
from heliograph.domain.phones.text_parts import DUPLICATE_MS, SplitText, add_part, join_parts

NOW = 1_789_000_000_000


def new_text(total: int) -> SplitText:
    return SplitText(sender="+447700900123", to="+12025550123", reference="0:7", total=total, started_at=NOW)


def parts_of(text: str, sizes: int, coding: int | None = None) -> list[TextPart]:
    """Split the bytes without regard to character boundaries."""
    if coding is None:
        coding, octets = encode_text(text)
    else:
        octets = text.encode("latin-1")
    pieces = [octets[at : at + sizes] for at in range(0, len(octets), sizes)]
    return [
        TextPart(
            sender="+447700900123",
            to="+12025550123",
            reference="0:7",
            total=len(pieces),
            number=number,
            coding=coding,
            octets=piece,
        )
        for number, piece in enumerate(pieces, 1)
    ]


def add_all(text: SplitText, parts: list[TextPart], now: int = NOW) -> list[IncomingText]:
    return [report for part in parts for report in add_part(text, part, now)]


@pytest.mark.parametrize(
    ("text", "coding"),
    [("price {5} €" * 30, None), ("Grüße 😀 ж" * 30, None), ("Arrêt à la gare" * 20, 3), ("a" * 300, None)],
)
@pytest.mark.parametrize("size", [7, 133, 134])
@pytest.mark.parametrize("seed", range(5))
def test_parts_in_any_order_and_repeated_are_joined_once(text: str, coding: int | None, size: int, seed: int) -> None:
    parts = parts_of(text, size, coding)
    order = parts + random.Random(seed).choices(parts, k=5)
    random.Random(seed).shuffle(order)
    split = new_text(len(parts))
    (report,) = add_all(split, order)
    assert (report.text, report.is_incomplete) == (text, False)
    assert add_all(split, order) == []


def test_parts_with_different_codings_are_each_decoded() -> None:
    first, second = parts_of("Hi @", 2)
    third = msgspec.structs.replace(parts_of("ж", 2)[0], number=3)
    (report,) = add_all(new_text(3), [first, second, third])
    assert report.text == "Hi @ж"


def test_text_with_a_missing_part_contains_the_received_parts() -> None:
    parts = parts_of("one two three", 4)
    split = new_text(len(parts))
    assert add_all(split, [parts[2], parts[0]]) == []
    assert (join_parts(split).text, join_parts(split).is_incomplete) == ("one thre", True)


def test_part_that_comes_after_the_others_were_reported_is_reported_alone_and_once() -> None:
    parts = parts_of("one two three", 4)
    split = new_text(len(parts))
    add_all(split, parts[:2])
    split.finished_at = NOW
    (late,) = add_all(split, [parts[2], parts[2], parts[0]], NOW + 1)
    assert (late.text, late.is_incomplete) == ("thre", True)


def test_reference_used_for_another_text_reports_both() -> None:
    old, new = parts_of("one two ", 4), parts_of("a b cde ", 4)
    split = new_text(2)
    first, second = add_all(split, [old[0], new[0], new[1]])
    assert (first.text, first.is_incomplete) == ("one ", True)
    assert (second.text, second.is_incomplete) == ("a b cde ", False)
    assert add_all(split, [new[0]]) == []
    (third,) = add_all(split, old)
    assert third.text == "one two "


def test_same_text_again_after_the_time_for_repeats_is_reported_again() -> None:
    parts = parts_of("one two ", 4)
    split = new_text(2)
    assert len(add_all(split, parts)) == 1
    assert add_all(split, parts, NOW + DUPLICATE_MS - 1) == []
    assert len(add_all(split, parts, NOW + DUPLICATE_MS)) == 1
