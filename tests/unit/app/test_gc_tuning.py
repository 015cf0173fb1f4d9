"""How often and among what the program looks for cycles."""

import gc
import sys
from collections.abc import Iterator

import pytest

from grange.app import gc_tuning
from grange.app.main import main


@pytest.fixture
def default_thresholds() -> Iterator[None]:
    """Those with which Python starts; another test may have tuned this process."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("default_thresholds")
def test_tuning_makes_the_collector_look_less_often() -> None:
    """A server that looks after every 700 allocations spends a sixth of its time looking."""
    gc_tuning.tune()
    assert gc.isenabled()
    assert gc.get_threshold()[0] >= 10 * 700


@pytest.mark.usefixtures("default_thresholds")
def test_collector_is_tuned_whatever_the_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules stay: an agent loads its own in 8 % less."""
    monkeypatch.setattr(sys, "argv", ["grange", "--version"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert gc.get_threshold()[0] >= 10 * 700


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
