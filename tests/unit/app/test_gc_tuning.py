"""How often and among what the server looks for cycles."""

import gc

from grange.app import gc_tuning


def test_tuning_makes_the_collector_look_less_often() -> None:
    """A server that looks after every 700 allocations spends a sixth of its time looking."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # Python's default; another test may have tuned this process
    try:
        gc.set_threshold(700, 10, 10)  # as Python starts; simulations tune it for themselves
        gc_tuning.tune()
        assert gc.isenabled()
        assert gc.get_threshold()[0] >= 10 * 700
    finally:
        gc.set_threshold(*before)


class Ring:
    """Something that only the collector takes away."""

    gone = False

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        Ring.gone = True


def test_settling_keeps_no_garbage_and_skips_old_objects() -> None:
    """Garbage that is frozen would stay forever."""
    Ring()
    frozen = gc.get_freeze_count()
    gc_tuning.settle()  # not undone: the tests were frozen before, and are to stay so
    assert Ring.gone
    assert gc.get_freeze_count() > frozen
    assert len(gc.get_objects()) < gc.get_freeze_count() / 10
