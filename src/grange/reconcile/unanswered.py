"""Reads what became of writes that had no answer, so that expectations do not wait for what never happened.

A write whose outcome is unknown is settled by the object itself: a creation by its name, which is
deterministic, a deletion by its UID. The same is asked about a write that the cache does not show
for some seconds: what was created and is gone again before a relist is never shown.
"""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from grange.api.meta import ObjectKey, Resource
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
        caches: of those kinds, by the same. What the cache showed before it was expected is never shown
            again: a creation whose name was taken by an older object of the owner, a deletion that another
            client made first. It is settled when the cache has what the server has.

    Raises:
        ApiError: the server cannot be read; nothing is known yet, so try again.
    """
    uid = owner.metadata.uid
    if expectations.satisfied(uid):
        return 0.0
    for write in expectations.doubtful(uid):
        live = await _read(client, owner, kinds[write.kind], write)
        cache = caches.get(write.kind)
        if _happened(owner, live, write) and not _is_shown(cache, owner, live, write):
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
    return _is_deleted(live, write.uid)


def _is_deleted(found: Resource | None, uid: str) -> bool:
    """Whether the object of a UID is gone or on its way, by what is found under its name."""
    return found is None or found.metadata.uid != uid or bool(found.metadata.deletion_timestamp)


def _is_shown(
    cache: Indexer[Any] | None, owner: Resource, live: Resource | None, write: Doubtful
) -> bool:
    """Whether the cache has what was found to have happened."""
    if cache is None:
        return False
    cached = cache.get(ObjectKey(owner.metadata.namespace, write.name))
    if write.uid:
        return _is_deleted(cached, write.uid)
    return cached is not None and live is not None and cached.metadata.uid == live.metadata.uid
