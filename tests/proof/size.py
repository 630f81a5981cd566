"""How large each proof is, and what it found: short in `make test`, in full with PROOF=1 (`make proof`)."""

import os
from collections.abc import Iterator

FULL = bool(os.environ.get("PROOF"))

# Promise and what is counted → short, full.
SIZES = {
    "P1 kills": (2, 200),
    "P1 accepts between kills": (30, 50),
    "P2 accepts": (50, 200),
    "P3 kills": (2, 50),
    "P3 pauses": (2, 200),
    "P4 examples": (25, 2_000),
    "P4 steps": (20, 50),
    "P4 races": (1, 50),
    "P5 keys": (10, 1_000),
    "P5 kills": (2, 50),
    "P6 rounds": (20, 500),
    "P9 waiting": (2_000, 100_000),
    "P10 stops": (2, 50),
    "P12 seconds": (1, 30),
    "P12 at once": (32, 512),  # requests that the service takes; in full its own limit
    "P13 breaks": (60, 200),
    "P14 poison": (2, 20),
    "P14 others": (30, 10_000),
    "P16 restores of SQLite": (2, 20),
    "P16 restores of PostgreSQL": (2, 20),
    "P18 requests": (3, 200),  # drawn: for an endpoint in full, for each of its kinds of requests in short
    "P18 changed requests": (40, 19_800),  # for an endpoint
    "P19 seeds": (100, 10_000),
    "P20 crashes": (2, 50),
    "cells requests": (200, 5_000),
    "live copy kills": (2, 10),
    "recovery stops": (2, 20),
    "P22 kills": (3, 10),
    "P22 runs": (1, 20),
    "P27 hand-overs": (15, 1_000),  # after the clock is wrong
    "P28 bulk": (100, 1_000),
    "P28 expiring": (20, 200),
    "P28 suppressed": (5, 50),
    "P28 suspended": (5, 50),
    "P29 at once": (1, 50),
    "P30 kills": (1, 100),
    "P30 not believed": (20, 1_000),
    "P32 events": (400, 200_000),
    "P32 kills": (1, 20),
    "P10 rolling restarts": (1, 20),
    "pgbouncer messages": (40, 2_000),
    "pgbouncer writes": (5, 500),
    "guesses from an address": (2, 20),  # of fifty
    "restrictions calls": (240, 10_000),
    "restrictions kills": (2, 50),
    "restrictions clients": (16, 64),
    "dkim domains": (2, 50),
    "dkim days": (30, 90),
    "dkim moves": (2, 4),
    "renders of templates": (4_000, 10_000_000),
}

found: dict[str, list[str]] = {}  # promise → what its tests reported in this run


# For what another test already does on the second database, or takes long.
DATABASES = ("sqlite", "postgres") if FULL else ("sqlite",)


def size(what: str) -> int:
    return SIZES[what][FULL]


def drawn(count: int) -> int:
    """How many examples a test draws: that many in full (`make proof PROOFS=draws`), else a fifth of them."""
    return count if FULL else count // 5


def rounds(promise: str, count: int) -> Iterator[int]:
    """0 … count - 1; a run in full tells how far it is."""
    for number in range(count):
        if FULL and number % max(1, count // 20) == 0:
            print(f"{promise}: {number} of {count}", flush=True)
        yield number


def report(promise: str, line: str) -> None:
    """For docs/internals/proof/results.md, which a run in full writes; always printed."""
    print(f"{promise}: {line}", flush=True)
    found.setdefault(promise, []).append(line)


def database_name(url: str) -> str:
    return "SQLite" if url.startswith("sqlite") else "PostgreSQL"
