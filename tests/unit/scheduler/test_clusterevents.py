"""Which events a registration is about."""

from hypothesis import given, strategies as st

from grange.scheduler.clusterevents import EVERYTHING, Action, ClusterEvent, Subject

EVENTS = st.builds(
    ClusterEvent,
    st.sampled_from(Subject),
    st.integers(0, EVERYTHING.value).map(Action),
)


@given(EVENTS, EVENTS)
def test_an_event_matches_by_subject_and_by_any_of_its_actions(
    asked: ClusterEvent, happened: ClusterEvent
) -> None:
    subject = asked.subject is happened.subject or Subject.ANY in (asked.subject, happened.subject)
    assert asked.matches(happened) == (subject and bool(asked.action & happened.action))


def test_equal_events_are_equal_whatever_is_kept_of_them() -> None:
    one = ClusterEvent(Subject.NODE, Action.ADD | Action.NODE_LABEL)
    assert one == ClusterEvent(Subject.NODE, Action.NODE_LABEL | Action.ADD)
    assert "_bits" not in repr(one)
