"""Finalizers: names on an object that keep it until the controller that put them has finished.

https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/
"""

from typing import TypeVar

from grange.api.meta import Resource
from grange.api.scheme import KindInfo
from grange.client.client import Client

R = TypeVar("R", bound=Resource)


def has(obj: Resource, name: str) -> bool:
    """Whether the object waits for the finalizer when it is deleted."""
    return name in obj.metadata.finalizers


async def add(client: Client, kind: KindInfo[R], obj: R, name: str) -> R:
    """Put the finalizer on the object, which must be as it was read.

    Returns:
        The object as it is then; unchanged if it had the finalizer.

    Raises:
        ApiError: it changed meanwhile, or is not there any more.
    """
    if has(obj, name):
        return obj
    return await _write(client, kind, obj, [*obj.metadata.finalizers, name])


async def remove(client: Client, kind: KindInfo[R], obj: R, name: str) -> R:
    """Take the finalizer off the object, which must be as it was read.

    Returns:
        The object as it is then; unchanged if it did not have the finalizer. Other finalizers may
        keep it.

    Raises:
        ApiError: it changed meanwhile, or is not there any more.
    """
    if not has(obj, name):
        return obj
    return await _write(client, kind, obj, [one for one in obj.metadata.finalizers if one != name])


async def _write(client: Client, kind: KindInfo[R], obj: R, finalizers: list[str]) -> R:
    return await client.patch_as_read(kind, obj, {"metadata": {"finalizers": finalizers}})
