"""Deliberate errors have one root, and a broken promise names its facts."""

import pytest

from grange.base.errors import GrangeError, InvariantError, invariant


def test_invariant_that_holds_raises_nothing() -> None:
    invariant("anything true", "arithmetic")


def test_broken_invariant_names_the_facts_in_order() -> None:
    with pytest.raises(InvariantError) as caught:
        invariant([], "no pod bound twice", pod="web-1", nodes=["a", "b"])
    assert str(caught.value) == "no pod bound twice (pod='web-1', nodes=['a', 'b'])"
    assert isinstance(caught.value, GrangeError)


def test_broken_invariant_without_facts_is_the_message() -> None:
    with pytest.raises(InvariantError, match=r"^plain$"):
        invariant(None, "plain")
