"""How far the members of a group are: what the cache's group states are elsewhere."""

from typing import Any

import msgspec

from grange.api.kinds.pod import Pod
from grange.api.kinds.podgroup import GROUP_LABEL, PodGroup
from grange.api.meta import ObjectKey
from grange.scheduler.gangs.members import Book, Gang
from grange.sim import builders

KEY = ObjectKey("default", "g")


def pod(name: str, group: str = "g", **options: Any) -> Pod:
    return builders.pod(name, labels={GROUP_LABEL: group}, **options)


def ended(one: Pod) -> Pod:
    status = msgspec.structs.replace(one.status, phase="Succeeded")
    return msgspec.structs.replace(one, status=status)


def going(one: Pod) -> Pod:
    meta = msgspec.structs.replace(one.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(one, metadata=meta)


def gang(book: Book, group: str = "g") -> Gang:
    found = book.get(ObjectKey("default", group))
    assert found is not None
    return found


def far(book: Book) -> dict[str, int]:
    return {place.value: count for place, count in gang(book).tally.items() if count}


def test_check_66_a_group_lives_as_long_as_its_members() -> None:
    """The last one gone, the group is; others are not touched; one that comes again starts anew."""
    book = Book()
    book.pod_seen(pod("a"))
    book.pod_seen(pod("b"))
    book.pod_seen(pod("x", "other"))
    other, first = gang(book, "other"), gang(book)
    assert len(book) == 2
    book.pod_gone(pod("a"))
    assert list(first.members) == ["uid-b"]
    book.pod_gone(pod("b"))
    assert book.get(KEY) is None
    assert gang(book, "other") is other
    assert list(other.members) == ["uid-x"]
    book.pod_seen(pod("a"))
    assert gang(book) is not first
    assert not gang(book).placed_once


def test_check_66_group_with_object_outlives_its_members() -> None:
    book = Book()
    book.group_seen(msgspec.convert({"metadata": {"name": "g", "namespace": "default"}}, PodGroup))
    book.pod_seen(pod("a"))
    book.pod_gone(pod("a"))
    assert gang(book).members == {}
    book.group_gone(KEY)
    assert book.get(KEY) is None


def test_check_92_assumed_forgotten_and_bound() -> None:
    """Those with a node count, assumed or bound; who is gone does not."""
    book = Book()
    for name in "abc":
        book.pod_seen(pod(name))
    assert far(book) == {"waiting": 3}
    book.assumed(pod("a"))
    book.assumed(pod("b"))
    assert far(book) == {"waiting": 1, "assumed": 2}
    assert gang(book).there == 2
    book.pod_seen(pod("a"))  # the informer does not know of it yet
    assert far(book) == {"waiting": 1, "assumed": 2}
    book.forgotten(pod("b"))
    assert far(book) == {"waiting": 2, "assumed": 1}
    book.pod_seen(pod("a", nodeName="n"))
    book.forgotten(pod("a"))  # what is bound is not taken back
    assert far(book) == {"waiting": 2, "bound": 1}
    assert gang(book).there == 1
    book.pod_seen(ended(pod("a", nodeName="n")))
    assert far(book) == {"waiting": 2, "succeeded": 1}
    assert (gang(book).there, gang(book).quorum) == (0, 1)


def test_check_92_pods_that_nobody_knows_change_nothing() -> None:
    book = Book()
    book.pod_seen(pod("a"))
    book.assumed(pod("unknown"))
    book.forgotten(pod("unknown"))
    book.pod_gone(pod("unknown"))
    assert far(book) == {"waiting": 1}
    assert book.pod_seen(builders.pod("single")) is None


def test_check_92_books_are_independent() -> None:
    one, other = Book(), Book()
    one.pod_seen(pod("a"))
    other.pod_seen(pod("a"))
    one.assumed(pod("a"))
    assert (far(one), far(other)) == ({"assumed": 1}, {"waiting": 1})


def test_who_names_another_group_leaves_the_first() -> None:
    """As far as it was; with what is known of it under its old label it is found all the same."""
    book = Book()
    for name in "ab":
        book.pod_seen(pod(name))
    book.assumed(pod("a"))
    moved = pod("a", "other")
    assert book.pod_moved(pod("a")) is None
    assert book.pod_moved(moved) is gang(book)
    book.pod_seen(moved)
    assert far(book) == {"waiting": 1}
    assert (gang(book, "other").there, book.member(pod("a"))) == (1, gang(book, "other"))
    book.forgotten(pod("a"))
    assert (gang(book, "other").there, far(book)) == (0, {"waiting": 1})
    book.pod_gone(pod("a"))
    assert book.get(ObjectKey("default", "other")) is None


def test_who_names_no_group_any_more_is_in_none() -> None:
    book = Book()
    book.pod_seen(pod("a", nodeName="n"))
    single = builders.pod("a", nodeName="n")
    assert book.pod_seen(single) is None
    assert book.member(single) is None
    assert len(book) == 0
    assert book.pod_gone(single) is None


def test_who_is_on_its_way_out_is_there_no_more() -> None:
    """All of them: what comes now is a gang again; some: it is started still."""
    book = Book()
    spec = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}
    book.group_seen(msgspec.convert(spec, PodGroup))
    for name in "ab":
        book.pod_seen(pod(name, nodeName="n"))
    one = gang(book)
    one.placed_once = True
    assert (one.there, one.quorum, one.present, one.started) == (2, 2, 2, True)
    book.pod_seen(going(pod("a", nodeName="n")))
    assert (one.there, one.quorum, one.present, one.started) == (1, 1, 1, True)
    book.pod_seen(going(pod("b", nodeName="n")))
    assert (one.there, one.quorum, one.present, one.started) == (0, 0, 0, False)
    book.pod_seen(pod("c", nodeName="n"))
    assert not one.started  # one of two that somebody bound is not a gang that was placed
    book.pod_gone(pod("a"))
    book.pod_seen(ended(going(pod("b", nodeName="n"))))
    assert (one.going, one.there, one.quorum) == (0, 1, 2)
    book.clear()
    assert one.going == 0
