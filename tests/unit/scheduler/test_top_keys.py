"""The largest key is found without looking at all of them, whatever happens to keys."""

import numpy as np
from hypothesis import given, settings, strategies as st

from grange.base.rng import Stream
from grange.placement.columns import Integers
from grange.scheduler.engine.top_keys import TopKeys
from grange.scheduler.snapshot import TIE_BITS, TIE_MAX


class Board:
    """Rows with keys in groups, in an order that is not that of the rows."""

    def __init__(self, rows: int, rng: Stream, groups: int = 1) -> None:
        order = [*range(rows)]
        order = rng.shuffled(order)
        self.tie = {row: TIE_MAX - at for at, row in enumerate(order)}
        self.keys: Integers = np.full(rows, -1, np.int64)
        self.group_of = np.array(rng.shuffled([row % groups for row in range(rows)]), np.int32)
        self.tops = TopKeys(self.group_of)

    def key(self, row: int, score: int) -> int:
        return -1 if score < 0 else (score << TIE_BITS) + self.tie[row]

    def score(self, row: int, score: int) -> None:
        """Give the row a score; -1 takes it out."""
        self.keys[row] = self.key(row, score)
        self.tops.put(row, self.key(row, score))

    def score_all(self, rng: Stream) -> None:
        """Give all rows other scores at once."""
        self.keys[:] = [self.key(row, rng.integer(-1, 5)) for row in range(len(self.keys))]
        self.tops.put_all(self.keys)

    def check(self) -> None:
        assert self.tops.largest() == self.keys.max()
        groups = range(int(self.group_of.max()) + 1)
        expected = [int(self.keys[self.group_of == group].max()) for group in groups]
        assert self.tops.by_group() == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_the_top_is_the_largest_key_over_any_history(seed: int) -> None:
    """Rising and falling, few rows and many, one group or several, asked often or seldom."""
    rng = Stream(seed)
    rows = rng.choice([3, 40, 700, 3000])
    board = Board(rows, rng, rng.choice([1, 2, 3]))
    for row in range(rows):
        board.score(row, rng.integer(-1, 5))
    for _ in range(60):
        if not rng.integer(0, 9):
            board.score_all(rng)
        for _ in range(rng.choice([0, 1, 1, 5, 50])):
            board.score(rng.integer(0, rows - 1), rng.integer(-1, 5))
        board.check()


def test_taking_the_best_away_again_and_again_empties_the_board() -> None:
    board = Board(2000, Stream(1))
    for row in range(2000):
        board.score(row, row % 3)
    row_of = {tie: row for row, tie in board.tie.items()}
    taken = []
    while (key := board.tops.largest()) >= 0:
        row = row_of[key & TIE_MAX]
        taken.append(key)
        board.score(row, -1)
    assert len(taken) == 2000
    assert taken == sorted(taken, reverse=True)


def test_leftovers_do_not_pile_up() -> None:
    """A row that changes forever without coming to the top leaves one look at its block."""
    board = Board(100, Stream(2))
    for row in range(100):
        board.score(row, 1)
    best = board.tops.largest()
    row = next(row for row in range(100) if board.keys[row] != best)
    for number in range(10_000):
        board.score(row, number % 2)
    assert len(board.tops._fallen) <= 1
    board.check()
