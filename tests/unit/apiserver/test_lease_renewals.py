"""Renewals of Leases are written without the checks of a whole object, and no answer differs by it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.unit.apiserver.server import Server
from tests.unit.apiserver.test_status_writes import some_of

from grange.api import codec
from grange.api.http import MERGE_PATCH
from grange.api.kinds import LEASE
from grange.api.meta import Document
from grange.api.patch import merge_patch
from grange.api.status import ApiError
from grange.apiserver.registry import Place
from grange.apiserver.write_options import WriteOptions
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
PLACE = Place(LEASE, "default", "m")
FIRST, LATER = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:10.000000Z"
HELD: Document = {
    "metadata": {"name": "m", "annotations": {"a.dev/until": FIRST, "a.dev/note": "x"}},
    "spec": {"holderIdentity": "m", "leaseDurationSeconds": 40, "renewTime": FIRST},
}
RENEWAL: Document = {
    "metadata": {"annotations": {"a.dev/until": LATER, "a.dev/old": None}},
    "spec": {"holderIdentity": "m", "leaseDurationSeconds": 40, "renewTime": LATER},
}

# The choices of some fields. Some are refused, some are warned about.
SPEC: dict[str, tuple[Any, ...]] = {
    "renewTime": (LATER, LATER, "2026-01-01T00:00:10Z", "2026-02-30T00:00:10.000000Z", "", None, 7),
    "holderIdentity": ("m", "m", "other", None, 7),
    "leaseDurationSeconds": (40, 40, 41, 0, True, 40.0, "40", None),
    "leaseTransitions": (1, -1),
    "unknown": (1, None),
}
ANNOTATIONS: dict[str, tuple[Any, ...]] = {
    "a.dev/until": (LATER, LATER, "", None, 7, "x" * 300_000),
    "a.dev/note": ("x", "y", "long", None),
    "a.dev/new": ("1", None),
    "-not-a-key-": ("1", None),
}
METADATA: dict[str, tuple[Any, ...]] = {
    "labels": ({"a": "b"},),
    "uid": ("other",),
    "resourceVersion": ("1",),
    "finalizers": (["a.dev/held"], None),
    "name": ("m", "other"),
}
TOP: dict[str, tuple[Any, ...]] = {
    "apiVersion": (LEASE.api_version, "v2", None),
    "kind": ("Lease", "Node"),
    "status": ({"phase": "x"},),
    "unknown": (1,),
}


@st.composite
def patches(draw: st.DrawFn) -> Document:
    annotations = draw(st.one_of(some_of(ANNOTATIONS), st.sampled_from((None, 7))))
    meta = {"annotations": annotations, **draw(st.one_of(st.just({}), some_of(METADATA)))}
    return {
        "spec": draw(st.one_of(some_of(SPEC), st.sampled_from((None, 7)))),
        **draw(st.sampled_from(({}, {"metadata": meta}, {"metadata": meta}, {"metadata": None}))),
        **draw(st.one_of(st.just({}), some_of(TOP))),
    }


async def server_with_lease(clock: Clock, log: Logger) -> Server:
    server = Server(clock=clock, rng=Stream(1), log=log)
    await server.application.bootstrap()
    await server.made(LEASES, HELD)
    return server


async def outcome(
    server: Server, change: Callable[[Document], Document], **options: Any
) -> tuple[object, ...]:
    """Everything that a caller sees of a write, and the stored object."""
    registry = server.application.registry
    seen: tuple[object, ...]
    try:
        written = await registry.update(PLACE, change, WriteOptions(**options), verb="patch")
        seen = (written.value, written.warnings, written.removed)
    except ApiError as error:
        seen = (codec.encode_any(error.status().document()),)
    entry = server.store.latest(PLACE.key)
    return (*seen, entry and entry.value)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.one_of(st.just(RENEWAL), patches()), max_size=4),
    st.sampled_from(("Strict", "Warn", "Ignore")),
    st.booleans(),
)
async def test_renewals_are_the_same_as_any_patch(
    clock: Clock, log: Logger, steps: list[Document], validation: str, dry_run: bool
) -> None:
    fast, whole = [await server_with_lease(clock, log) for _ in range(2)]
    for patch in steps:
        options = {"field_validation": validation, "dry_run": dry_run}
        change = merge_patch.MergePatch(codec.clone(patch))
        seen = [
            await outcome(fast, change, **options),
            await outcome(whole, partial(merge_patch.apply, patch=change.patch), **options),
        ]
        assert seen[0] == seen[1]
    assert whole.work.renewals == 0


@pytest.mark.parametrize(
    ("patch", "renewals"),
    [
        (RENEWAL, 1),
        ({"spec": {"renewTime": LATER}}, 1),
        ({"spec": {"renewTime": LATER, "holderIdentity": "other"}}, 0),
        ({**RENEWAL, "metadata": {"annotations": {"a.dev/new": "1"}}}, 0),
    ],
)
async def test_renewal_takes_the_short_way(
    clock: Clock, log: Logger, patch: Document, renewals: int
) -> None:
    server = await server_with_lease(clock, log)
    before = server.work.decodes
    answer = await server.patch(f"{LEASES}/m", patch, media=MERGE_PATCH)
    assert (answer.code, server.work.renewals) == (200, renewals)
    assert server.work.decodes - before == 1
