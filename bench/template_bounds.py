"""Random templates, searched for the values that become most: none may be above its bound, and how near it is.

`python bench/template_bounds.py RENDERS [SEED]`, from the top of the repository.
"""

import sys
import time
from random import Random

sys.path.insert(0, ".")  # the generator is the tests'

from tests.rules.template_worlds import BRANDS, make_world, searched

from heliograph.rules.templates.bounds import bounds_of


def main(renders: int, seed: int) -> None:
    random, begun, seen, templates, near = Random(seed), time.monotonic(), 0, 0, 0

    def count(_: tuple[int, int]) -> None:
        nonlocal seen
        seen += 1

    while seen < renders:
        world = make_world(random)
        bounds = bounds_of(world.template, BRANDS, world.layout, world.segmenting)
        assert bounds
        size, segments = searched(world, random, 4, count)
        most = bounds.segments or 0
        assert size <= bounds.octets and segments <= most, world
        templates += 1
        near += bounds.octets <= max(size * 1.05, size + 2) and most <= max(segments + 1, segments * 1.05)
    took = time.monotonic() - begun
    print(f"{templates} templates, {seen:,} renders in {took:.0f} s, none above its bound;")
    print(f"{near} bounds ({100 * near / templates:.1f} %) within 5 % and one segment of the most that was found")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
