"""P6: a code has five guesses and works once, however many ask at the same time."""

import asyncio
from collections import Counter

import pytest

from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.proof.size import report, rounds, size
from tests.storage.conftest import store as store
from tests.storage.samples import RIGHT, WRONG, check, finish, start

ROUNDS = size("P6 rounds")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([WRONG] * 100, {(False, "pending"): 4, (False, "exhausted"): 96}),
        ([RIGHT] * 50, {(True, "verified"): 1, (False, "verified"): 49}),
    ],
    ids=["wrong", "right"],
)
async def test_parallel_codes_have_the_promised_outcomes(
    store: Store, other: Store, clock: TestClock, codes: list[str], expected: dict[tuple[bool, str], int]
) -> None:
    for _ in rounds("P6", ROUNDS):
        begun = start(clock)
        await store.verifications.start(begun)
        await store.verifications.finish(finish(begun, clock))
        results = await asyncio.gather(
            *(
                (store, other)[i % 2].verifications.check(check(begun, code, clock.now()))
                for i, code in enumerate(codes)
            )
        )
        assert Counter((r.verified, r.status) for r in results) == expected
    name = type(store.database).__name__.removesuffix("Database")
    report("P6", f"{name}: {ROUNDS} × {len(codes)} {codes[0]} at once: as promised every time")
