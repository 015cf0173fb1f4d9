import gc

from grange.app import collector


def test_tuning_makes_the_collector_look_less_often() -> None:
    """A server that looks after every 700 allocations spends a sixth of its time looking."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        collector.tune()
        assert gc.isenabled()
        assert gc.get_threshold()[0] >= 10 * before[0]
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
