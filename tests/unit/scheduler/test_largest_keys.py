"""The largest key is found without looking at all of them, whatever happens to keys."""

import numpy as np
from hypothesis import given, settings, strategies as st

from grange.base.rng import Stream
from grange.placement.columns import Ids
from grange.scheduler.engine.largest_keys import Blocks, LargestKeys
from grange.scheduler.snapshot import TIE_BITS, TIE_MAX


class Board:
    """Rows with keys, in an order that is not that of the rows."""

    def __init__(self, cells: Ids, number: int, rng: Stream) -> None:
        rows = len(cells)
        self.tie = {row: TIE_MAX - at for at, row in enumerate(rng.shuffled([*range(rows)]))}
        self.cells, self.number = cells, number
        self.keys = np.full(rows, -1, np.int64)
        self.largest_keys = LargestKeys(self.keys, Blocks.of(cells, number))

    def score(self, row: int, score: int) -> None:
        """Give the row a score; -1 takes it out."""
        self.keys[row] = -1 if score < 0 else (score << TIE_BITS) + self.tie[row]
        self.largest_keys.change(row, int(self.keys[row]))

    def largest(self) -> list[int]:
        return [int(self.keys[self.cells == at].max(initial=-1)) for at in range(self.number)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_the_top_is_the_largest_key_over_any_history(seed: int) -> None:
    """Rising and falling, few rows and many, one cell or several, asked often or seldom."""
    rng = Stream(seed)
    rows, number = rng.choice([3, 40, 700, 3000]), rng.choice([1, 3, 20])
    cells = np.asarray([rng.integer(-1, number) for _ in range(rows)], np.int32)
    board = Board(cells, number, rng)
    own = [row for row in range(rows) if 0 <= cells[row] < number]
    for row in own:
        board.score(row, rng.integer(-1, 5))
    for _ in range(60):
        for _ in range(rng.choice([0, 1, 1, 5, 50]) if own else 0):
            board.score(rng.choice(own), rng.integer(-1, 5))
        assert board.largest_keys.by_cell() == board.largest()
        assert board.largest_keys.best() == max(board.largest())


def test_taking_the_best_away_again_and_again_empties_the_board() -> None:
    board = Board(np.zeros(2000, np.int32), 1, Stream(1))
    for row in range(2000):
        board.score(row, row % 3)
    row_of = {tie: row for row, tie in board.tie.items()}
    taken = []
    while (key := board.largest_keys.best()) >= 0:
        row = row_of[key & TIE_MAX]
        taken.append(key)
        board.score(row, -1)
    assert len(taken) == 2000
    assert taken == sorted(taken, reverse=True)


def test_keys_that_are_never_asked_for_keep_nothing() -> None:
    """A profile that samples nodes asks for the scores of rows, not for the largest key."""
    board = Board(np.zeros(2000, np.int32), 1, Stream(1))
    for _ in range(100):
        board.score(0, 9)
        board.score(0, 1)
    assert len(board.largest_keys._stale) == 1
    assert [board.largest_keys.best()] == board.largest()


def test_keys_of_many_small_cells_take_little_room() -> None:
    """Each class in use holds its keys, so blocks must not be mostly empty."""
    blocks = Blocks.of(np.arange(5000, dtype=np.int32) % 250, 250)
    assert blocks.cells[-1] << blocks.bits <= 2 * 5000
