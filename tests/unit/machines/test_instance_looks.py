"""Two looks apart must agree before an instance or a record counts as lost."""

from grange.machines.controller.instance_looks import InstanceLooks
from grange.machines.providers.provider import Instance


def test_one_look_proves_nothing() -> None:
    looks = InstanceLooks(10.0)
    orphan = Instance("i-9", "unknown")
    first = looks.look([orphan], {"m"}, began=0.0)
    assert (first.missing, first.orphans) == (frozenset(), ())
    soon = looks.look([orphan], {"m"}, began=9.0)
    assert (soon.missing, soon.orphans) == (frozenset(), ())
    second = looks.look([orphan], {"m"}, began=10.0)
    assert (second.missing, second.orphans) == (frozenset({"m"}), (orphan,))


def test_what_is_seen_again_has_no_strike() -> None:
    looks = InstanceLooks(10.0)
    mine = Instance("i-1", "m")
    looks.look([], {"m"}, began=0.0)
    seen = looks.look([mine], {"m"}, began=10.0)
    assert seen.by_machine == {"m": mine}
    assert looks.look([], {"m"}, began=20.0).missing == frozenset()
    assert looks.look([], {"m"}, began=30.0).missing == {"m"}


def test_a_launch_begins_the_strikes_again() -> None:
    looks = InstanceLooks(10.0)
    looks.look([], {"m", "n"}, began=0.0)
    assert looks.look([], {"m", "n"}, calling={"m"}, began=10.0).missing == {"n"}
    looks.forget("n")
    assert looks.look([], {"m", "n"}, began=20.0).missing == frozenset()


def test_a_record_that_appears_keeps_its_instance() -> None:
    looks = InstanceLooks(10.0)
    found = Instance("i-1", "m")
    looks.look([found], set(), began=0.0)
    assert looks.look([found], {"m"}, began=10.0).orphans == ()
    assert looks.look([found], set(), began=20.0).orphans == ()
