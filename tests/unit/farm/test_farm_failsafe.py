"""When deletions are held, whom that alarms, and what lets them go on."""

import pytest

from grange.alerts.alerts import Alert, Alerts
from grange.alerts.sinks import MemorySink
from grange.reconcile.farm.deletion_guard import Danger, Failsafe, FailsafeConfig
from grange.reconcile.farm.errors import DeletionsHeld

CALM_S = FailsafeConfig().calm_s


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


@pytest.fixture
def failsafe(sink: MemorySink) -> Failsafe:
    return Failsafe("farm/x", Alerts(sink), FailsafeConfig(deletions=10))


def reasons(sink: MemorySink) -> list[str]:
    return [alert.reason for alert in sink.active]


def test_check_f1_view_that_empties_holds_deletions_and_alerts(
    failsafe: Failsafe, sink: MemorySink
) -> None:
    failsafe.see(0, objects=10)
    failsafe.permit_deletion(0)
    failsafe.see(1, objects=0)
    with pytest.raises(DeletionsHeld, match="no_objects_found"):
        failsafe.permit_deletion(1)
    assert [(alert.reason, alert.urgency) for alert in sink.active] == [
        ("no_objects_found", "high")
    ]
    failsafe.see(1000, objects=0)
    assert reasons(sink) == ["no_objects_found"], "it is as empty as before"
    failsafe.see(1001, objects=10)
    with pytest.raises(DeletionsHeld):
        failsafe.permit_deletion(1002)
    failsafe.permit_deletion(1001 + CALM_S)
    assert sink.active == []
    assert [what for what, _ in sink.history] == ["raised", "resolved"]


def test_check_f2_some_replicas_somewhere_alarm_nobody(
    failsafe: Failsafe, sink: MemorySink
) -> None:
    failsafe.see(0, objects=5, weight=10)
    failsafe.see(1, objects=5, weight=1)
    failsafe.permit_deletion(2)
    assert sink.history == []


def test_check_f3_everything_at_zero_holds_deletions_and_alerts(
    failsafe: Failsafe, sink: MemorySink
) -> None:
    failsafe.see(0, objects=5, weight=10)
    failsafe.see(1, objects=5, weight=0)
    with pytest.raises(DeletionsHeld, match="zero_replicas_found"):
        failsafe.permit_deletion(1)
    assert reasons(sink) == ["zero_replicas_found"]
    failsafe.see(2, objects=5, weight=3)
    failsafe.permit_deletion(2 + CALM_S)
    assert sink.active == []


def test_check_f3_all_at_zero_at_startup_holds_deletions(
    sink: MemorySink,
) -> None:
    """A process that has only just begun has no earlier view to compare with."""
    failsafe = Failsafe("farm/x", Alerts(sink), population=lambda: 400)
    failsafe.see(0, objects=100, weight=0)
    with pytest.raises(DeletionsHeld, match="zero_replicas_found"):
        failsafe.permit_deletion(0)
    assert reasons(sink) == ["zero_replicas_found"]
    failsafe.see(1000, objects=100, weight=0)
    assert reasons(sink) == ["zero_replicas_found"], "it asks for as little as before"
    failsafe.see(1001, objects=100, weight=7)
    failsafe.permit_deletion(1001 + CALM_S)
    assert sink.active == []


def test_check_f3_operator_may_confirm_zero_at_startup(
    sink: MemorySink,
) -> None:
    failsafe = Failsafe("farm/x", Alerts(sink), population=lambda: 400)
    failsafe.see(0, objects=100, weight=0)
    failsafe.resume(1)
    failsafe.permit_deletion(2)
    failsafe.see(700, objects=100, weight=0)
    failsafe.permit_deletion(700)
    assert sink.active == []


def test_first_look_is_judged_when_live_pods_are_known(
    sink: MemorySink,
) -> None:
    known: list[int | None] = [None]
    failsafe = Failsafe("farm/x", Alerts(sink), population=lambda: 400, owned=lambda: known[0])
    failsafe.see(0, objects=100, weight=0)
    failsafe.permit_deletion(0)
    known[0] = 3
    failsafe.see(1, objects=100, weight=0)
    failsafe.permit_deletion(1)
    known[0] = 400
    failsafe.permit_deletion(2)
    assert sink.history == [], "what came later was made under our eyes"


def test_brand_new_cluster_is_no_alarm(failsafe: Failsafe, sink: MemorySink) -> None:
    failsafe.see(0, objects=0, weight=0)
    failsafe.see(1, objects=1, weight=0)
    failsafe.see(2, objects=9, weight=0)
    failsafe.permit_deletion(2)
    assert sink.history == []


def test_last_few_may_go_one_by_one(failsafe: Failsafe, sink: MemorySink) -> None:
    for number in range(4):
        failsafe.see(number, objects=3 - number)
    failsafe.permit_deletion(4)
    for number in range(8):
        failsafe.see(100 + number * 50, objects=7 - number)
    failsafe.permit_deletion(500)
    assert sink.history == []


def test_much_that_vanishes_at_once_is_alarming(failsafe: Failsafe, sink: MemorySink) -> None:
    failsafe.see(0, objects=100)
    failsafe.see(1, objects=49)
    with pytest.raises(DeletionsHeld, match="objects_vanished"):
        failsafe.permit_deletion(1)
    assert failsafe.tick(30) is not None, "it wants to look again"
    failsafe.permit_deletion(61 + CALM_S + CALM_S)
    assert sink.active == []


def test_weakness_w5_store_that_goes_back_is_alarming(failsafe: Failsafe, sink: MemorySink) -> None:
    failsafe.see(0, objects=5, version="100")
    failsafe.see(1, objects=5, version="90")
    with pytest.raises(DeletionsHeld, match="store_went_back"):
        failsafe.permit_deletion(1)
    failsafe.see(2, objects=5, version="opaque")
    failsafe.see(3, objects=5, version="91")
    failsafe.permit_deletion(1 + CALM_S)
    assert sink.active == []


def test_deletions_beyond_the_budget_are_held_until_withdrawn(
    failsafe: Failsafe, sink: MemorySink
) -> None:
    for _ in range(10):
        failsafe.permit_deletion(0)
    with pytest.raises(DeletionsHeld, match="deletion_budget_exceeded"):
        failsafe.permit_deletion(1)
    assert reasons(sink) == ["deletion_budget_exceeded"]
    with pytest.raises(DeletionsHeld):
        failsafe.permit_deletion(50)
    with pytest.raises(DeletionsHeld):
        failsafe.permit_deletion(50 + CALM_S - 1)
    failsafe.permit_deletion(50 + CALM_S - 1 + CALM_S)
    assert sink.active == []


def test_budget_grows_with_the_population(sink: MemorySink) -> None:
    failsafe = Failsafe("farm/x", Alerts(sink), FailsafeConfig(deletions=1), population=lambda: 100)
    for _ in range(25):
        failsafe.permit_deletion(0)
    with pytest.raises(DeletionsHeld):
        failsafe.permit_deletion(0)


def test_resume_lets_deletions_go_on_and_takes_the_view_as_meant(
    failsafe: Failsafe, sink: MemorySink
) -> None:
    failsafe.see(0, objects=100)
    failsafe.see(1, objects=0)
    assert failsafe.dangers == (Danger.EMPTY,)
    failsafe.resume(2)
    for _ in range(50):
        failsafe.permit_deletion(3)
    failsafe.see(4, objects=0)
    assert sink.active == []
    failsafe.see(700, objects=100)
    failsafe.see(701, objects=0)
    assert failsafe.dangers == (Danger.EMPTY,), "the word was for then, not for ever"


def test_alert_is_told_once_while_it_lasts() -> None:
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
    failsafe = Failsafe("farm/x", Alerts(sink), FailsafeConfig(deletions=10))
    for number in range(1000):
        failsafe.permit_deletion(number / 100, "pods")
        failsafe.created(number / 100, "pods")
        failsafe.created(number / 100, "events")
    assert failsafe.dangers == ()
    for _ in range(10):
        failsafe.permit_deletion(11, "pods")
    with pytest.raises(DeletionsHeld):
        failsafe.permit_deletion(11, "pods")


def test_deletions_that_were_refused_do_not_use_up_the_budget(failsafe: Failsafe) -> None:
    for _ in range(100):
        failsafe.spared(failsafe.permit_deletion(0))
    under_way = [failsafe.permit_deletion(1) for _ in range(10)]
    with pytest.raises(DeletionsHeld):
        failsafe.permit_deletion(1)  # those under way count until it is known
    for change in under_way:
        failsafe.spared(change)
        failsafe.spared(change)
    failsafe.permit_deletion(1 + CALM_S)
    for change in under_way:
        failsafe.spared(change)
    for _ in range(9):
        failsafe.permit_deletion(1 + CALM_S)
    with pytest.raises(DeletionsHeld):
        failsafe.permit_deletion(1 + CALM_S)


def test_answer_after_confirmation_refunds_nothing_twice(failsafe: Failsafe) -> None:
    before = failsafe.permit_deletion(0)
    failsafe.resume(1)
    failsafe.spared(before)
    for _ in range(10):
        failsafe.permit_deletion(1000)
    with pytest.raises(DeletionsHeld):
        failsafe.permit_deletion(1000)


def test_each_resource_has_its_own_budget(sink: MemorySink) -> None:
    failsafe = Failsafe("farm/x", Alerts(sink), FailsafeConfig(deletions=10))
    for _ in range(10):
        failsafe.permit_deletion(0, "pods")
        failsafe.permit_deletion(0, "configmaps")
    with pytest.raises(DeletionsHeld):
        failsafe.permit_deletion(0, "configmaps")


LACKS = [Danger.ORPHANED, Danger.NODELESS]


@pytest.mark.parametrize("lack", LACKS)
def test_check_f1_all_owners_or_nodes_missing_holds_deletions(
    sink: MemorySink, lack: Danger
) -> None:
    """What the collectors of garbage would delete: they have no earlier view to compare with."""
    orphans: list[int | None] = [None]
    failsafe = Failsafe("farm/x", Alerts(sink), bereft={lack: lambda: orphans[0]})
    failsafe.see(0, objects=6)
    orphans[0] = 10
    with pytest.raises(DeletionsHeld, match=lack.value):
        failsafe.permit_deletion(1)
    failsafe.see(1000, objects=6)
    assert reasons(sink) == [lack.value], "they are still missing"
    orphans[0] = 0
    failsafe.tick(1000 + CALM_S)
    failsafe.permit_deletion(1001 + CALM_S)
    assert sink.active == []


@pytest.mark.parametrize("lack", LACKS)
@pytest.mark.parametrize("orphans", [0, 3])
def test_owners_that_go_while_we_look_on_take_theirs_with_them(
    sink: MemorySink, orphans: int, lack: Danger
) -> None:
    there = [orphans]
    failsafe = Failsafe("farm/x", Alerts(sink), bereft={lack: lambda: there[0]})
    failsafe.see(0, objects=6)
    there[0] = 10
    failsafe.permit_deletion(1)
    assert sink.history == []


def test_an_operator_may_say_that_no_owner_is_meant_to_be_there(sink: MemorySink) -> None:
    failsafe = Failsafe("farm/x", Alerts(sink), bereft={Danger.ORPHANED: lambda: 10})
    failsafe.see(0, objects=6)
    assert failsafe.dangers == (Danger.ORPHANED,)
    failsafe.resume(1)
    failsafe.permit_deletion(2)
    failsafe.see(700, objects=6)
    failsafe.permit_deletion(701)
    assert sink.active == []
