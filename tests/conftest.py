"""What holds for all tests: profile ``ci`` of Hypothesis gives the same examples in every run."""

import gc
from contextlib import ExitStack

import pytest
from tests.support.repeatable_examples import take_fewer_examples, without_local_constants


def pytest_collection_finish() -> None:
    """Take modules and tests out of every later collection of garbage: they stay to the end."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take fewer examples where they are the same in every run."""
    if config.getoption("--hypothesis-profile") == "ci":
        take_fewer_examples(items)


def pytest_configure(config: pytest.Config) -> None:
    """Keep what is loaded out of the examples."""
    if config.getoption("--hypothesis-profile") == "ci":
        stack = ExitStack()
        stack.enter_context(without_local_constants())
        config.add_cleanup(stack.close)
