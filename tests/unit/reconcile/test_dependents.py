"""What happens to owned objects reaches their owners, and nothing else."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import ObjectKey, ObjectMeta, OwnerReference
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.reconcile import owners
from grange.reconcile.expectations import Expectations
from grange.reconcile.indexer import Indexer
from grange.reconcile.owner_handler import DeletedFinalStateUnknown, Dependents

GRC = REPLICATIONCONTROLLER


def owner(name: str, uid: str) -> ReplicationController:
    return ReplicationController(metadata=ObjectMeta(name=name, namespace="ns", uid=uid))


WEB, DB = owner("web", "uid-web"), owner("db", "uid-db")


def pod(
    of: ReplicationController | OwnerReference | None = WEB,
    *,
    version: str = "1",
    going: bool = False,
    role: str = "server",
    name: str = "p",
) -> Pod:
    reference = owners.owner_reference(GRC, of) if isinstance(of, ReplicationController) else of
    meta = ObjectMeta(
        name=name,
        namespace="ns",
        uid=f"uid-{name}",
        resource_version=version,
        deletion_timestamp="2026-01-01T00:00:00Z" if going else None,
        owner_references=(reference,) if reference is not None else (),
        labels={"role": role} if role else {},
    )
    return Pod(metadata=meta)


class Scene:
    """Dependents with two known owners, and what they were notified of."""

    def __init__(self, candidates: Iterable[ObjectKey] = ()) -> None:
        self.woken: list[str] = []
        self.expectations = Expectations(LoopClock())
        known: Indexer[ReplicationController] = Indexer()
        for item in (WEB, DB):
            known.put(item.key, item, None)
            self.expectations.expect_creations(item.metadata.uid, ["p", "q"], kind="pods")
            self.expectations.expect_deletions(item.metadata.uid, {"uid-p": "p", "uid-q": "q"})
        found = tuple(candidates)
        self.dependents: Dependents[Pod, ReplicationController] = Dependents(
            owner_kind=GRC,
            owners=known,
            expectations=self.expectations,
            enqueue=lambda key: self.woken.append(key.name),
            log=Logger("dependents"),
            kind="pods",
            accepts=lambda obj: bool(obj.metadata.labels.get("role")),
            candidates=lambda _: found,
        )

    def awaited(self, item: ReplicationController = WEB) -> tuple[int, int]:
        """How many creations and deletions an owner still waits for."""
        awaited = self.expectations.awaited(item.metadata.uid)
        return len(awaited.creations), len(awaited.deletions)


def test_check_19_add_wakes_the_owner_and_lowers_creations() -> None:
    scene = Scene()
    scene.dependents.added(pod())
    assert scene.woken == ["web"]
    assert (scene.awaited(WEB), scene.awaited(DB)) == ((1, 2), (2, 2))
    scene.dependents.added(pod())
    assert scene.awaited(WEB) == (1, 2), "delivered again, it still counts once"


STRANGE: list[tuple[str, Pod]] = [
    ("no owner", pod(None)),
    ("stale uid", pod(owner("web", "uid-old"))),
    ("unknown name", pod(owner("other", "uid-web"))),
    (
        "other kind",
        pod(msgspec.structs.replace(owners.owner_reference(GRC, WEB), kind="ReplicaSet")),
    ),
    (
        "other group",
        pod(msgspec.structs.replace(owners.owner_reference(GRC, WEB), api_version="apps/v1")),
    ),
    ("no role", pod(role="")),
]


@pytest.mark.parametrize("obj", [case[1] for case in STRANGE], ids=[case[0] for case in STRANGE])
def test_check_20_what_is_not_ours_wakes_none(obj: Pod) -> None:
    scene = Scene()
    scene.dependents.added(obj)
    scene.dependents.deleted(obj)
    assert scene.woken == []
    assert (scene.awaited(WEB), scene.awaited(DB)) == ((2, 2), (2, 2))


def test_check_20_terminating_object_that_appears_counts_as_gone() -> None:
    """A restarted controller sees it as an add; it is a deletion all the same."""
    scene = Scene()
    scene.dependents.added(pod(going=True, name="q"))
    assert scene.awaited(WEB)[1] == 1


def test_orphan_wakes_those_who_might_adopt_it() -> None:
    """Upstream leaves orphans to some later sync, which may never come."""
    scene = Scene(candidates=[WEB.key, DB.key])
    scene.dependents.added(pod(None))
    assert scene.woken == ["web", "db"]


def test_check_21_update_with_the_same_version_is_nothing() -> None:
    scene = Scene()
    scene.dependents.updated(pod(), pod())
    assert scene.woken == []


@pytest.mark.parametrize(
    ("before", "after", "woken"),
    [
        (WEB, DB, ["web", "db"]),
        (WEB, None, ["web"]),
        (None, WEB, ["web"]),
        (WEB, WEB, ["web"]),
        (None, None, []),
    ],
)
def test_check_21_update_wakes_old_and_new_owner(
    before: ReplicationController | None, after: ReplicationController | None, woken: list[str]
) -> None:
    scene = Scene()
    scene.dependents.updated(pod(before), pod(after, version="2"))
    assert scene.woken == woken
    assert scene.awaited(WEB) == (2, 2), "an update is neither a creation nor a deletion"


def test_released_object_wakes_those_who_might_adopt_it() -> None:
    scene = Scene(candidates=[DB.key])
    scene.dependents.updated(pod(WEB), pod(None, version="2"))
    assert scene.woken == ["web", "db"]


def test_relabelled_orphan_wakes_those_who_might_adopt_it() -> None:
    scene = Scene(candidates=[DB.key])
    scene.dependents.updated(pod(None), pod(None, version="2", role="client"))
    scene.dependents.updated(pod(None, version="2"), pod(None, version="3"))
    assert scene.woken == ["db"]


def test_check_22_delete_lowers_deletions_and_wakes_the_owner() -> None:
    """Informers hand over the last known state for a deletion that was missed: the same call."""
    scene = Scene()
    scene.dependents.deleted(pod())
    assert scene.woken == ["web"]
    assert scene.awaited(WEB) == (1, 1), "what is gone will not appear either"


def test_check_22_tombstone_counts_as_deletion() -> None:
    scene = Scene()
    scene.dependents.deleted(DeletedFinalStateUnknown(ObjectKey("ns", "p"), pod()))
    assert (scene.woken, scene.awaited(WEB)) == (["web"], (1, 1))


def test_check_22_tombstone_without_an_object_is_reported(records: Any) -> None:
    scene = Scene()
    scene.dependents.deleted(DeletedFinalStateUnknown(ObjectKey("ns", "p")))
    assert (scene.woken, scene.awaited(WEB)) == ([], (2, 2))
    assert [(event, facts["key"]) for event, facts in records] == [
        ("deletion ignored: no last state", "ns/p")
    ]


def test_check_23_terminating_counts_once_per_uid() -> None:
    scene = Scene()
    scene.dependents.updated(pod(), pod(version="2", going=True))
    assert scene.awaited(WEB) == (2, 1)
    scene.dependents.updated(pod(version="2", going=True), pod(version="3", going=True))
    assert scene.awaited(WEB) == (2, 1)
    scene.dependents.deleted(pod(version="4", going=True))
    assert scene.awaited(WEB)[1] == 1
    assert scene.woken == ["web", "web", "web"]
