"""Bounds of templates: random ones, rendered with what their variables allow.

No render is above its template's bound. The worst that a search finds is within a segment of it, and within 5 % of its
octets for all but a few: where one value is a whole link and a text as well, its scheme is counted as if it were not in
the text. `make test` renders some thousands; `make proof PROOFS=templates` ten million, in one process a core (SEED,
RENDERS).
"""

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from random import Random

from heliograph.templates.policy.bounds import bounds_of
from tests.domain.template_samples import BRANDS, make_sample, search_maximum
from tests.proof.size import FULL, report, size

SEED, RENDERS = int(os.environ.get("SEED", "18")), int(os.environ.get("RENDERS") or size("renders of templates"))
JOBS = int(os.environ.get("JOBS") or (os.cpu_count() or 1)) if FULL else 1
TRIES, AGAIN = 2, 60  # walks of a world's search, for octets and for segments; searches while nothing near is found
LOOSE, FLOOR = 0.05, 8  # of the octets; and what a few characters more or less are
LOOSE_MAX = 0.08  # of the templates


def look(seed: int, wanted: int) -> Counter[str]:
    """Render so many from this seed on; counts them, and what was wrong."""
    random, counts = Random(seed), Counter[str]()
    while counts["renders"] < wanted:
        world = make_sample(random)
        bounds = bounds_of(world.template, BRANDS, world.layout, world.segmenting)
        assert bounds
        most = bounds.octets, bounds.segments or 0

        def seen(found: tuple[int, int], count: int, most: tuple[int, int] = most) -> None:
            counts["renders"] += count
            counts["above"] += found[0] > most[0] or found[1] > most[1]

        octets = segments = 0
        for _ in range(AGAIN):
            found = search_maximum(world, random, TRIES, seen)
            octets, segments = max(octets, found[0]), max(segments, found[1])
            is_loose = most[0] - octets > max(LOOSE * most[0], FLOOR), most[1] - segments > 1
            if not any(is_loose):
                break
        counts.update({"templates": 1, "loose octets": is_loose[0], "loose segments": is_loose[1]})
    return counts


def test_no_render_is_above_its_bound_and_some_are_near() -> None:
    shares = [(SEED + at, RENDERS // JOBS) for at in range(JOBS)]
    if JOBS == 1:
        found = look(*shares[0])
    else:
        with ProcessPoolExecutor(JOBS) as pool:
            found = sum(pool.map(look, *zip(*shares, strict=True)), Counter())
    report(
        "templates", f"{found['renders']:,} renders of {found['templates']:,} templates from seed {SEED}: {dict(found)}"
    )
    assert not (found["above"] or found["loose segments"])
    assert found["loose octets"] <= LOOSE_MAX * found["templates"]
