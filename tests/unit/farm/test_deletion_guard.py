"""When deletions are held, whom that alarms, and what lets them go on."""

import pytest
from tests.support.memory_sink import MemorySink

from grange.alerts.alerts import Alert, Alerts
from grange.reconcile.farm.deletion_guard import DeletionGuard, DeletionGuardConfig, Trigger
from grange.reconcile.farm.errors import DeletionsHeld

CALM_S = DeletionGuardConfig().cooldown_s


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


@pytest.fixture
def deletion_guard(sink: MemorySink) -> DeletionGuard:
    return DeletionGuard("farm/x", Alerts(sink), DeletionGuardConfig(deletions=10))


def reasons(sink: MemorySink) -> list[str]:
    return [alert.reason for alert in sink.active]


def test_check_f1_view_that_empties_holds_deletions_and_alerts(
    deletion_guard: DeletionGuard, sink: MemorySink
) -> None:
    deletion_guard.see(0, objects=10)
    deletion_guard.permit_deletion(0)
    deletion_guard.see(1, objects=0)
    with pytest.raises(DeletionsHeld, match="no_objects_found"):
        deletion_guard.permit_deletion(1)
    assert [(alert.reason, alert.urgency) for alert in sink.active] == [
        ("no_objects_found", "high")
    ]
    deletion_guard.see(1000, objects=0)
    assert reasons(sink) == ["no_objects_found"], "it is as empty as before"
    deletion_guard.see(1001, objects=10)
    with pytest.raises(DeletionsHeld):
        deletion_guard.permit_deletion(1002)
    deletion_guard.permit_deletion(1001 + CALM_S)
    assert sink.active == []
    assert [what for what, _ in sink.history] == ["raised", "resolved"]


def test_check_f2_some_replicas_somewhere_raises_no_alert(
    deletion_guard: DeletionGuard, sink: MemorySink
) -> None:
    deletion_guard.see(0, objects=5, weight=10)
    deletion_guard.see(1, objects=5, weight=1)
    deletion_guard.permit_deletion(2)
    assert sink.history == []


def test_check_f3_everything_at_zero_holds_deletions_and_alerts(
    deletion_guard: DeletionGuard, sink: MemorySink
) -> None:
    deletion_guard.see(0, objects=5, weight=10)
    deletion_guard.see(1, objects=5, weight=0)
    with pytest.raises(DeletionsHeld, match="zero_replicas_found"):
        deletion_guard.permit_deletion(1)
    assert reasons(sink) == ["zero_replicas_found"]
    deletion_guard.see(2, objects=5, weight=3)
    deletion_guard.permit_deletion(2 + CALM_S)
    assert sink.active == []


def test_check_f3_all_at_zero_at_startup_holds_deletions(
    sink: MemorySink,
) -> None:
    """A process that has only just begun has no earlier view to compare with."""
    deletion_guard = DeletionGuard("farm/x", Alerts(sink), population=lambda: 400)
    deletion_guard.see(0, objects=100, weight=0)
    with pytest.raises(DeletionsHeld, match="zero_replicas_found"):
        deletion_guard.permit_deletion(0)
    assert reasons(sink) == ["zero_replicas_found"]
    deletion_guard.see(1000, objects=100, weight=0)
    assert reasons(sink) == ["zero_replicas_found"], "it asks for as little as before"
    deletion_guard.see(1001, objects=100, weight=7)
    deletion_guard.permit_deletion(1001 + CALM_S)
    assert sink.active == []


def test_check_f3_operator_may_confirm_zero_at_startup(
    sink: MemorySink,
) -> None:
    deletion_guard = DeletionGuard("farm/x", Alerts(sink), population=lambda: 400)
    deletion_guard.see(0, objects=100, weight=0)
    deletion_guard.resume(1)
    deletion_guard.permit_deletion(2)
    deletion_guard.see(700, objects=100, weight=0)
    deletion_guard.permit_deletion(700)
    assert sink.active == []


def test_first_look_is_judged_when_live_pods_are_known(
    sink: MemorySink,
) -> None:
    known: list[int | None] = [None]
    deletion_guard = DeletionGuard(
        "farm/x", Alerts(sink), population=lambda: 400, owned=lambda: known[0]
    )
    deletion_guard.see(0, objects=100, weight=0)
    deletion_guard.permit_deletion(0)
    known[0] = 3
    deletion_guard.see(1, objects=100, weight=0)
    deletion_guard.permit_deletion(1)
    known[0] = 400
    deletion_guard.permit_deletion(2)
    assert sink.history == [], "what came later was made under our eyes"


def test_brand_new_cluster_is_no_alarm(deletion_guard: DeletionGuard, sink: MemorySink) -> None:
    deletion_guard.see(0, objects=0, weight=0)
    deletion_guard.see(1, objects=1, weight=0)
    deletion_guard.see(2, objects=9, weight=0)
    deletion_guard.permit_deletion(2)
    assert sink.history == []


def test_last_few_may_go_one_by_one(deletion_guard: DeletionGuard, sink: MemorySink) -> None:
    for number in range(4):
        deletion_guard.see(number, objects=3 - number)
    deletion_guard.permit_deletion(4)
    for number in range(8):
        deletion_guard.see(100 + number * 50, objects=7 - number)
    deletion_guard.permit_deletion(500)
    assert sink.history == []


def test_much_that_vanishes_at_once_is_alarming(
    deletion_guard: DeletionGuard, sink: MemorySink
) -> None:
    deletion_guard.see(0, objects=100)
    deletion_guard.see(1, objects=49)
    with pytest.raises(DeletionsHeld, match="objects_vanished"):
        deletion_guard.permit_deletion(1)
    assert deletion_guard.tick(30) is not None, "it wants to look again"
    deletion_guard.permit_deletion(61 + CALM_S + CALM_S)
    assert sink.active == []


def test_weakness_w5_store_that_goes_back_is_alarming(
    deletion_guard: DeletionGuard, sink: MemorySink
) -> None:
    deletion_guard.see(0, objects=5, version="100")
    deletion_guard.see(1, objects=5, version="90")
    with pytest.raises(DeletionsHeld, match="store_went_back"):
        deletion_guard.permit_deletion(1)
    deletion_guard.see(2, objects=5, version="opaque")
    deletion_guard.see(3, objects=5, version="91")
    deletion_guard.permit_deletion(1 + CALM_S)
    assert sink.active == []


def test_deletions_beyond_the_budget_are_held_until_withdrawn(
    deletion_guard: DeletionGuard, sink: MemorySink
) -> None:
    for _ in range(10):
        deletion_guard.permit_deletion(0)
    with pytest.raises(DeletionsHeld, match="deletion_budget_exceeded"):
        deletion_guard.permit_deletion(1)
    assert reasons(sink) == ["deletion_budget_exceeded"]
    with pytest.raises(DeletionsHeld):
        deletion_guard.permit_deletion(50)
    with pytest.raises(DeletionsHeld):
        deletion_guard.permit_deletion(50 + CALM_S - 1)
    deletion_guard.permit_deletion(50 + CALM_S - 1 + CALM_S)
    assert sink.active == []


def test_budget_grows_with_the_population(sink: MemorySink) -> None:
    deletion_guard = DeletionGuard(
        "farm/x", Alerts(sink), DeletionGuardConfig(deletions=1), population=lambda: 100
    )
    for _ in range(25):
        deletion_guard.permit_deletion(0)
    with pytest.raises(DeletionsHeld):
        deletion_guard.permit_deletion(0)


def test_resume_lets_deletions_go_on_and_takes_the_view_as_meant(
    deletion_guard: DeletionGuard, sink: MemorySink
) -> None:
    deletion_guard.see(0, objects=100)
    deletion_guard.see(1, objects=0)
    assert deletion_guard.triggers == (Trigger.EMPTY,)
    deletion_guard.resume(2)
    for _ in range(50):
        deletion_guard.permit_deletion(3)
    deletion_guard.see(4, objects=0)
    assert sink.active == []
    deletion_guard.see(700, objects=100)
    deletion_guard.see(701, objects=0)
    assert deletion_guard.triggers == (Trigger.EMPTY,), "the word was for then, not forever"


def test_alert_is_reported_once_while_it_lasts() -> None:
    sink = MemorySink()
    alerts = Alerts(sink)
    assert alerts.fire(Alert("default/web", "short", "too few nodes"))
    assert not alerts.fire(Alert("default/web", "short", "still too few nodes"))
    assert alerts.fire(Alert("default/web", "stuck", "no progress")), (
        "another reason is another alert"
    )
    assert alerts.fire(Alert("default/db", "short", "too few nodes"))
    assert alerts.clear("default/web", "short")
    assert not alerts.clear("default/web", "short")
    assert [alert.reason for alert in alerts.active()] == ["stuck", "short"]
    assert [what for what, _ in sink.history] == ["raised"] * 3 + ["resolved"]


def test_what_is_replaced_is_not_counted_as_lost(sink: MemorySink) -> None:
    """A rolling update deletes as many as it creates, and may be as fast as it can."""
    deletion_guard = DeletionGuard("farm/x", Alerts(sink), DeletionGuardConfig(deletions=10))
    for number in range(1000):
        deletion_guard.permit_deletion(number / 100, "pods")
        deletion_guard.created(number / 100, "pods")
        deletion_guard.created(number / 100, "events")
    assert deletion_guard.triggers == ()
    for _ in range(10):
        deletion_guard.permit_deletion(11, "pods")
    with pytest.raises(DeletionsHeld):
        deletion_guard.permit_deletion(11, "pods")


def test_deletions_that_were_refused_do_not_use_up_the_budget(
    deletion_guard: DeletionGuard,
) -> None:
    for _ in range(100):
        deletion_guard.cancel_deletion(deletion_guard.permit_deletion(0))
    under_way = [deletion_guard.permit_deletion(1) for _ in range(10)]
    with pytest.raises(DeletionsHeld):
        deletion_guard.permit_deletion(1)  # those under way count until it is known
    for change in under_way:
        deletion_guard.cancel_deletion(change)
        deletion_guard.cancel_deletion(change)
    deletion_guard.permit_deletion(1 + CALM_S)
    for change in under_way:
        deletion_guard.cancel_deletion(change)
    for _ in range(9):
        deletion_guard.permit_deletion(1 + CALM_S)
    with pytest.raises(DeletionsHeld):
        deletion_guard.permit_deletion(1 + CALM_S)


def test_answer_after_confirmation_refunds_nothing_twice(deletion_guard: DeletionGuard) -> None:
    before = deletion_guard.permit_deletion(0)
    deletion_guard.resume(1)
    deletion_guard.cancel_deletion(before)
    for _ in range(10):
        deletion_guard.permit_deletion(1000)
    with pytest.raises(DeletionsHeld):
        deletion_guard.permit_deletion(1000)


def test_each_resource_has_its_own_budget(sink: MemorySink) -> None:
    deletion_guard = DeletionGuard("farm/x", Alerts(sink), DeletionGuardConfig(deletions=10))
    for _ in range(10):
        deletion_guard.permit_deletion(0, "pods")
        deletion_guard.permit_deletion(0, "configmaps")
    with pytest.raises(DeletionsHeld):
        deletion_guard.permit_deletion(0, "configmaps")


LACKS = [Trigger.ORPHANED, Trigger.NODELESS]


@pytest.mark.parametrize("lack", LACKS)
def test_check_f1_all_owners_or_nodes_missing_holds_deletions(
    sink: MemorySink, lack: Trigger
) -> None:
    """What the collectors of garbage would delete: they have no earlier view to compare with."""
    orphans: list[int | None] = [None]
    deletion_guard = DeletionGuard(
        "farm/x", Alerts(sink), required_objects={lack: lambda: orphans[0]}
    )
    deletion_guard.see(0, objects=6)
    orphans[0] = 10
    with pytest.raises(DeletionsHeld, match=lack.value):
        deletion_guard.permit_deletion(1)
    deletion_guard.see(1000, objects=6)
    assert reasons(sink) == [lack.value], "they are still missing"
    orphans[0] = 0
    deletion_guard.tick(1000 + CALM_S)
    deletion_guard.permit_deletion(1001 + CALM_S)
    assert sink.active == []


@pytest.mark.parametrize("lack", LACKS)
@pytest.mark.parametrize("orphans", [0, 3])
def test_owners_that_go_while_we_look_on_take_theirs_with_them(
    sink: MemorySink, orphans: int, lack: Trigger
) -> None:
    there = [orphans]
    deletion_guard = DeletionGuard(
        "farm/x", Alerts(sink), required_objects={lack: lambda: there[0]}
    )
    deletion_guard.see(0, objects=6)
    there[0] = 10
    deletion_guard.permit_deletion(1)
    assert sink.history == []


def test_an_operator_may_confirm_that_there_is_no_owner(sink: MemorySink) -> None:
    deletion_guard = DeletionGuard(
        "farm/x", Alerts(sink), required_objects={Trigger.ORPHANED: lambda: 10}
    )
    deletion_guard.see(0, objects=6)
    assert deletion_guard.triggers == (Trigger.ORPHANED,)
    deletion_guard.resume(1)
    deletion_guard.permit_deletion(2)
    deletion_guard.see(700, objects=6)
    deletion_guard.permit_deletion(701)
    assert sink.active == []
