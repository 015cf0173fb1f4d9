"""Examples of Hypothesis that are the same in every run: a quarter, without constants of modules.

Hypothesis mixes constants of loaded modules into its examples. Which modules are loaded depends on the
tests that a worker ran before, so examples that are to be the same in every run (profile ``ci``) would
differ with the order of tests.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

MANY = 50


@contextmanager
def without_local_constants() -> Iterator[None]:
    """Draw as if no module of the project were loaded."""
    none, module = Constants(), vars(providers)
    found = module["_get_local_constants"]  # hypothesis has no setting for it
    module["_get_local_constants"] = lambda: none
    providers.CONSTANTS_CACHE.cache.clear()
    try:
        yield
    finally:
        module["_get_local_constants"] = found
        providers.CONSTANTS_CACHE.cache.clear()


def take_fewer_examples(items: Iterable[pytest.Item]) -> None:
    """Take a quarter of the examples of each property that has many, but as many as others may have.

    Changes are judged by the same ones every time, so that more of them find little; the rest of the
    time goes into new ones, which ``make sim`` draws in full number.
    """
    seen: set[int] = set()
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        # A state machine has its bounds on the class of its test. There is no public way to a function's.
        machine = getattr(item.obj, "_hypothesis_state_machine_class", None)
        owner = getattr(item.obj, "__func__", item.obj) if machine is None else item.cls
        name = "_hypothesis_internal_use_settings" if machine is None else "settings"
        bounds = getattr(owner, name, None)
        if isinstance(bounds, settings) and bounds.max_examples > MANY and id(owner) not in seen:
            seen.add(id(owner))  # one function is the test of many parameters
            fewer = max(MANY, bounds.max_examples // 4)
            setattr(owner, name, settings(bounds, max_examples=fewer))
