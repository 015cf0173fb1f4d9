"""Numbers of things in messages agree with their nouns and verbs."""

from grange.base.plurals import be, counted


def test_noun_agrees_with_its_number() -> None:
    assert [counted(n, "pod") for n in (0, 1, 2)] == ["0 pods", "1 pod", "2 pods"]
    assert [counted(n, "pod waits", "pods wait") for n in (1, 2)] == ["1 pod waits", "2 pods wait"]


def test_verb_agrees_with_its_number() -> None:
    assert [be(n) for n in (0, 1, 2)] == ["are", "is", "are"]
