"""The largest key is found without looking at all of them, whatever happens to keys."""

import numpy as np
from hypothesis import given, settings, strategies as st

from grange.base.rng import Stream
from grange.placement.columns import Integers
from grange.scheduler.engine.lazy_heap import LazyHeap
from grange.scheduler.snapshot import TIE_BITS, TIE_MAX


class Board:
    """Rows with keys, in an order that is not that of the rows."""

    def __init__(self, rows: int, rng: Stream, among: Integers | None = None) -> None:
        order = [*range(rows)]
        order = rng.shuffled(order)
        self.tie = {row: TIE_MAX - at for at, row in enumerate(order)}
        self.keys: Integers = np.full(rows, -1, np.int64)
        self.among = among
        self.leaders = LazyHeap(self.keys, np.array(order, np.int64).data, among)

    def score(self, row: int, score: int) -> None:
        """Give the row a score; -1 takes it out."""
        key = -1 if score < 0 else (score << TIE_BITS) + self.tie[row]
        before = int(self.keys[row])
        self.keys[row] = key
        self.leaders.change(before, key)

    def largest(self) -> int:
        keys = self.keys if self.among is None else self.keys[self.among]
        return int(keys.max())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_the_top_is_the_largest_key_over_any_history(seed: int) -> None:
    """Rising and falling, few rows and many, all rows or some, asked often or seldom."""
    rng = Stream(seed)
    rows = rng.choice([3, 40, 700, 3000])
    among = np.arange(0, rows, 2) if rng.integer(0, 1) else None
    board = Board(rows, rng, among)
    own = range(0, rows, 1 if among is None else 2)
    for row in own:
        board.score(row, rng.integer(-1, 5))
    for _ in range(60):
        for _ in range(rng.choice([0, 1, 1, 5, 50])):
            board.score(rng.choice(own), rng.integer(-1, 5))
        assert board.leaders.best() == board.largest()


def test_taking_the_best_away_again_and_again_empties_the_board() -> None:
    board = Board(2000, Stream(1))
    for row in range(2000):
        board.score(row, row % 3)
    row_of = {tie: row for row, tie in board.tie.items()}
    taken = []
    while (key := board.leaders.best()) >= 0:
        row = row_of[key & TIE_MAX]
        taken.append(key)
        board.score(row, -1)
    assert len(taken) == 2000
    assert taken == sorted(taken, reverse=True)


def test_leftovers_do_not_pile_up() -> None:
    """A row that changes forever without coming to the top leaves an entry each time."""
    board = Board(100, Stream(2))
    for row in range(100):
        board.score(row, 1)
    best = (board.leaders.best(), board.leaders.best())
    row = next(row for row in range(100) if board.keys[row] not in best)
    for number in range(10_000):
        board.score(row, number % 2)
    assert len(board.leaders) < 1000
    assert board.leaders.best() == board.largest()
