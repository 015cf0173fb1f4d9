"""Hypothesis mixes constants of loaded modules into its examples; here it draws without them.

Which modules are loaded depends on the tests that a worker ran before, so examples that are to be the
same in every run (profile ``ci``) would differ with the order of tests.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants


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
