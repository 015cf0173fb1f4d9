"""Records of the audit in the order in which things happened."""

import pytest
from tests.support.controller_world import world
from tests.unit.cli.sessions import session

from grange.api.kinds import AUDITRECORD
from grange.api.kinds.replicationcontroller import NAME_LABEL
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.verbs import history


def record(name: str, time: str, version: str) -> Document:
    return {"metadata": {"name": name, "resourceVersion": version}, "spec": {"time": time}}


def test_history_ends_with_latest_and_keeps_order_of_ties() -> None:
    now, before = "2026-01-01T00:00:01.000000Z", "2026-01-01T00:00:00.999999Z"
    found = [record("c", now, "10"), record("b", now, "9"), record("a", before, "11")]
    assert [item["metadata"]["name"] for item in history.in_order(found)] == ["a", "b", "c"]


def test_where_another_controller_of_the_name_begins_is_reported() -> None:
    """Its members do not follow from those of the one before."""

    def of(uid: str, message: str = "") -> Document:
        return {"spec": {"controllerUid": uid, "message": message}}

    found = history.rows([of("1"), of("1"), of("2"), of("2"), of("3", "x")], now=0.0, wide=False)
    new = "another controller of the name"
    assert [cells[-1] for cells in found] == ["", "", new, "", f"{new}; x"]


async def test_what_the_limit_leaves_out_is_counted(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        await there.add_controller(replicas=0)
        for at in range(3):
            spec = {
                "time": f"2026-01-01T00:00:0{at}Z",
                "controller": "web",
                "event": "MembershipChanged",
            }
            meta = {"name": f"r{at}", "labels": {NAME_LABEL: "web"}}
            document = {
                "metadata": meta,
                "spec": {**spec, "schemaVersion": 1, "controllerUid": "u"},
            }
            await there.client.create(AUDITRECORD, document, "default")
        for limit, reported in ((2, "1 earlier, not shown: --limit 3"), (3, "")):
            assert await history.listed(session(there), "web", limit, "") == 0
            shown = capsys.readouterr()
            assert (len(shown.out.splitlines()), shown.err.strip()) == (limit + 1, reported)
