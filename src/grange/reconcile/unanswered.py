"""Reads what became of writes that had no answer, so that expectations do not wait for what never happened.

A write whose outcome is unknown is settled by the object itself: a creation by its name, which is
deterministic, a deletion by its UID. The same is asked about a write that the cache does not show
for some seconds: what was created and is gone again before a relist is never shown.
"""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from grange.api.meta import Resource
from grange.api.scheme import AnyKind
from grange.api.status import NotFound
from grange.client.client import Client
from grange.reconcile.expectations import Doubtful, Expectations
from grange.reconcile.indexer import Indexer
from grange.reconcile.owners import is_controlled_by


async def wait_s(
    client: Client,
    expectations: Expectations,
    owner: Resource,
    kinds: Mapping[str, AnyKind],
    *,
    caches: Mapping[str, Indexer[Any]] = MappingProxyType({}),
) -> float:
    """Seconds until an owner is to be looked at again; zero when it may act.

    Args:
        client: to the API.
        expectations: what the owner waits for; what the server answers is noted there.
        owner: whose.
        kinds: of its objects, by the qualifier of the expectations (empty for one kind alone).
        caches: of those kinds, by the same. A creation whose name was taken by an older object of
            the owner is never shown again; it is settled when the cache has what the server has.

    Raises:
        ApiError: the server cannot be read; nothing is known yet, so try again.
    """
    uid = owner.metadata.uid
    if expectations.satisfied(uid):
        return 0.0
    for write in expectations.doubtful(uid):
        live = await _read(client, owner, kinds[write.kind], write)
        if _happened(owner, live, write) and not _is_shown(caches.get(write.kind), live, write):
            expectations.confirmed(uid, write)
        else:
            expectations.refuted(uid, write)
    return 0.0 if expectations.satisfied(uid) else expectations.next_read_s(uid)


async def _read(client: Client, owner: Resource, kind: AnyKind, write: Doubtful) -> Resource | None:
    live: Resource | None = None
    with suppress(NotFound):
        live = await client.get(kind, write.name, owner.metadata.namespace)
    return live


def _happened(owner: Resource, live: Resource | None, write: Doubtful) -> bool:
    if not write.uid:
        return live is not None and is_controlled_by(live, owner)
    gone = live is None or live.metadata.uid != write.uid
    return gone or bool(live is not None and live.metadata.deletion_timestamp)


def _is_shown(cache: Indexer[Any] | None, live: Resource | None, write: Doubtful) -> bool:
    """Whether the cache has the very object that a creation is found to have made."""
    if write.uid or cache is None or live is None:
        return False
    cached = cache.get(live.key)
    return cached is not None and cached.metadata.uid == live.metadata.uid
