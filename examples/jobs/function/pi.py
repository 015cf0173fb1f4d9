"""Estimate pi in four members: run this program where ``grange up`` runs."""

import os
import random
from fractions import Fraction

from grange.jobs import run

POINTS = 100_000


def hits(seed: int) -> int:
    """Points of this member that fall into the quarter of a circle."""
    source = random.Random(seed + int(os.environ["GRANGE_INDEX"]))
    found = sum(source.random() ** 2 + source.random() ** 2 <= 1 for _ in range(POINTS))
    print(f"{found} of {POINTS}")
    return found


if __name__ == "__main__":
    with run(hits, args=(7,), replicas=4) as job:
        for line in job.logs(follow=True):
            print(line)
        total = sum(job.results())
    print("pi is about", float(Fraction(4 * total, 4 * POINTS)))
