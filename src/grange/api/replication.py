"""Annotations on ReplicationControllers: operations that outlive the process that requested them."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from grange.api.meta import Resource
from grange.base.errors import GrangeError

T = TypeVar("T")

PROTECT_ANNOTATION = "grange.dev/protect"
"""``replicas``: the object is not deleted, by whatever client, while it asks for any."""

PROTECT_REPLICAS = "replicas"

REMOVE_ANNOTATION = "grange.dev/remove-pods"
"""Pods, by commas, that go although they are not surplus: put there with the decrement.

Each is ``name/uid``. The uid decides, the name only locates the pod; a uid alone is accepted.
"""

TRANSFER_ANNOTATION = "grange.dev/replica-transfer"
"""JSON, on the giver of a transfer of replicas that is under way."""

GIVEN_UP_ANNOTATION = "grange.dev/replica-transfers-given-up"
"""JSON, on a giver: ids of the last transfers that were given up, for those who ordered them."""

RECEIVED_ANNOTATION = "grange.dev/replicas-received"
"""JSON, on the receiver: ids of transfers whose replicas it has, and their givers' names."""


AFTER_TRANSFER_ANNOTATION = "grange.dev/replicas-after-transfer"
"""The replicas that the giver kept when some were transferred to another controller.

While the spec asks for this number, unavailable pods are deleted first: the transfer was counted so.
"""

OLD_AFTER_TRANSFER_ANNOTATION = "grange.dev/replicas-left"
"""The name in earlier versions; it is read, and removed by the next transfer."""


def after_transfer(replicas: int) -> dict[str, str | None]:
    """The annotations of a giver that keeps a number of replicas, as a merge patch."""
    return {AFTER_TRANSFER_ANNOTATION: str(replicas), OLD_AFTER_TRANSFER_ANNOTATION: None}


def is_count_after_transfer(controller: Resource, replicas: int) -> bool:
    """Whether a transfer set this number of replicas."""
    found = controller.metadata.annotations
    names = (AFTER_TRANSFER_ANNOTATION, OLD_AFTER_TRANSFER_ANNOTATION)
    return str(replicas) in {found.get(name) for name in names}


class BadIntent(GrangeError):
    """An annotation of a controller is malformed (edited by a user).

    The message names the annotation, and how to remove it.
    """


class Transfer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Replicas on their way from one controller to another.

    Attributes:
        id: of this transfer; no two are alike.
        to: name of the receiver.
        to_uid: its uid; another one of the name is not meant.
        to_start: what it must ask for before it has received.
        add: so many more it shall ask for.
        remove: so many fewer the giver shall ask for afterwards.
        refused: given up, with nothing changed: the receiver was not as it had to be.
    """

    id: str
    to: str
    to_uid: str
    to_start: int
    add: int
    remove: int
    refused: bool = False


def transfer_of(giver: Resource) -> Transfer | None:
    """The transfer that is under way.

    Raises:
        BadIntent: the annotation cannot be read.
    """
    return _read(giver, TRANSFER_ANNOTATION, Transfer)


def received(receiver: Resource) -> dict[str, str]:
    """Ids of transfers whose replicas the object has, with the givers' names.

    Raises:
        BadIntent: the annotation cannot be read.
    """
    return _read(receiver, RECEIVED_ANNOTATION, dict[str, str]) or {}


def given_up(giver: Resource) -> list[str]:
    """Ids of earlier transfers that were given up, the latest last.

    Raises:
        BadIntent: the annotation cannot be read.
    """
    return _read(giver, GIVEN_UP_ANNOTATION, list[str]) or []


def check_orders(controller: Resource) -> None:
    """Read everything about transfers of replicas that a controller bears.

    Raises:
        BadIntent: one of its annotations cannot be read.
    """
    transfer_of(controller)
    received(controller)
    given_up(controller)


def ordered(controller: Resource) -> dict[str, str]:
    """Uids of the pods that are to be removed, with their names; an empty name where it is not known."""
    text = controller.metadata.annotations.get(REMOVE_ANNOTATION, "")
    entries = (entry.rpartition("/") for entry in text.split(",") if entry)
    return {uid: name for name, _, uid in entries}


def order_text(pods: Mapping[str, str]) -> str:
    """What ``ordered`` reads."""
    return ",".join(sorted(f"{name}/{uid}" if name else uid for uid, name in pods.items()))


def pods_to_remove(controller: Resource) -> frozenset[str]:
    """Uids of the pods that were ordered to go."""
    return frozenset(ordered(controller))


def written(value: Transfer | dict[str, str] | list[str]) -> str | None:
    """An annotation's text; None, which removes it, for nothing."""
    return msgspec.json.encode(value).decode() if value else None


def _read(obj: Resource, annotation: str, kind: type[T]) -> T | None:
    text = obj.metadata.annotations.get(annotation)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        meta = obj.metadata
        raise BadIntent(
            f"{obj.key}: annotation {annotation} cannot be read ({error}); take it away with "
            f"kubectl annotate -n {meta.namespace} grc/{meta.name} {annotation}-"
        ) from error
