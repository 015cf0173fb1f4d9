"""How far the members of a group are: what the cache's group states are elsewhere."""

from typing import Any

import msgspec

from grange.api.kinds.pod import Pod
from grange.api.kinds.podgroup import GROUP_LABEL, PodGroup
from grange.api.meta import ObjectKey
from grange.scheduler.gangs.pod_groups import Gang, MemberState, PodGroups
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


def gang(book: PodGroups, group: str = "g") -> Gang:
    found = book.get(ObjectKey("default", group))
    assert found is not None
    return found


def far(book: PodGroups) -> dict[str, int]:
    return {place.value: count for place, count in gang(book).counts.items() if count}


def test_check_66_a_group_lives_as_long_as_its_members() -> None:
    """The last one gone, the group is; others are not touched; one that comes again starts again."""
    book = PodGroups()
    book.update_pod(pod("a"))
    book.update_pod(pod("b"))
    book.update_pod(pod("x", "other"))
    other, first = gang(book, "other"), gang(book)
    assert len(book) == 2
    book.delete_pod(pod("a"))
    assert list(first.members) == ["uid-b"]
    book.delete_pod(pod("b"))
    assert book.get(KEY) is None
    assert gang(book, "other") is other
    assert list(other.members) == ["uid-x"]
    book.update_pod(pod("a"))
    assert gang(book) is not first
    assert not gang(book).was_placed


def test_check_66_group_with_object_outlives_its_members() -> None:
    book = PodGroups()
    book.update_group(
        msgspec.convert({"metadata": {"name": "g", "namespace": "default"}}, PodGroup)
    )
    book.update_pod(pod("a"))
    book.delete_pod(pod("a"))
    assert gang(book).members == {}
    book.delete_group(KEY)
    assert book.get(KEY) is None


def test_check_92_assumed_forgotten_and_bound() -> None:
    """Those with a node count, assumed or bound; who is gone does not."""
    book = PodGroups()
    for name in "abc":
        book.update_pod(pod(name))
    assert far(book) == {"waiting": 3}
    book.assume_pod(pod("a"))
    book.assume_pod(pod("b"))
    assert far(book) == {"waiting": 1, "assumed": 2}
    assert gang(book).counts.num_placed == 2
    book.update_pod(pod("a"))  # the informer does not know of it yet
    assert far(book) == {"waiting": 1, "assumed": 2}
    book.forget_pod(pod("b"))
    assert far(book) == {"waiting": 2, "assumed": 1}
    book.update_pod(pod("a", nodeName="n"))
    book.forget_pod(pod("a"))  # what is bound is not taken back
    assert far(book) == {"waiting": 2, "bound": 1}
    assert gang(book).counts.num_placed == 1
    book.update_pod(ended(pod("a", nodeName="n")))
    assert far(book) == {"waiting": 2, "succeeded": 1}
    assert (gang(book).counts.num_placed, gang(book).counts.num_counted) == (0, 1)


def test_check_92_unknown_pods_change_nothing() -> None:
    book = PodGroups()
    book.update_pod(pod("a"))
    book.assume_pod(pod("unknown"))
    book.forget_pod(pod("unknown"))
    book.delete_pod(pod("unknown"))
    assert far(book) == {"waiting": 1}
    assert book.update_pod(builders.pod("single")) is None


def test_check_92_books_are_independent() -> None:
    one, other = PodGroups(), PodGroups()
    one.update_pod(pod("a"))
    other.update_pod(pod("a"))
    one.assume_pod(pod("a"))
    assert (far(one), far(other)) == ({"assumed": 1}, {"waiting": 1})


def test_who_names_another_group_leaves_the_first() -> None:
    """As far as it was; with what is known of it under its old label it is found all the same."""
    book = PodGroups()
    for name in "ab":
        book.update_pod(pod(name))
    book.assume_pod(pod("a"))
    moved = pod("a", "other")
    assert book.move_pod(pod("a")) is None
    assert book.move_pod(moved) is gang(book)
    book.update_pod(moved)
    assert far(book) == {"waiting": 1}
    assert (gang(book, "other").counts.num_placed, book.containing(pod("a"))) == (
        1,
        gang(book, "other"),
    )
    book.forget_pod(pod("a"))
    assert (gang(book, "other").counts.num_placed, far(book)) == (0, {"waiting": 1})
    book.delete_pod(pod("a"))
    assert book.get(ObjectKey("default", "other")) is None


def test_who_names_no_group_any_more_is_in_none() -> None:
    book = PodGroups()
    book.update_pod(pod("a", nodeName="n"))
    single = builders.pod("a", nodeName="n")
    assert book.update_pod(single) is None
    assert book.containing(single) is None
    assert len(book) == 0
    assert book.delete_pod(single) is None


def test_who_is_on_its_way_out_is_there_no_more() -> None:
    """All of them: what comes now is a gang again; some: it is started still."""
    book = PodGroups()
    spec = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}
    book.update_group(msgspec.convert(spec, PodGroup))
    for name in "ab":
        book.update_pod(pod(name, nodeName="n"))
    one = gang(book)
    one.was_placed = True
    assert (one.counts.num_placed, one.counts.num_counted, one.counts.num_present, one.started) == (
        2,
        2,
        2,
        True,
    )
    book.update_pod(going(pod("a", nodeName="n")))
    assert (one.counts.num_placed, one.counts.num_counted, one.counts.num_present, one.started) == (
        1,
        1,
        1,
        True,
    )
    book.update_pod(going(pod("b", nodeName="n")))
    assert (one.counts.num_placed, one.counts.num_counted, one.counts.num_present, one.started) == (
        0,
        0,
        0,
        False,
    )
    book.update_pod(pod("c", nodeName="n"))
    assert not one.started  # one of two that another scheduler bound is not a gang that was placed
    book.delete_pod(pod("a"))
    book.update_pod(ended(going(pod("b", nodeName="n"))))
    assert (one.counts[MemberState.TERMINATING], one.counts.num_placed, one.counts.num_counted) == (
        0,
        1,
        2,
    )
    book.clear()
    assert one.counts[MemberState.TERMINATING] == 0
