"""Objects that ask for replicas can be protected from deletion, whatever client asks for it.

An object with copies with the annotation ``grange.dev/protect: replicas`` is not deleted while it
asks for any. In a namespace that is going it is: deleting a namespace means everything in it.
"""

from typing import Any

import msgspec

from grange.api.fields import lookup
from grange.api.replication import PROTECT_ANNOTATION, PROTECT_REPLICAS
from grange.api.status import Cause, Forbidden
from grange.apiserver import storage
from grange.apiserver.admission import Attributes
from grange.base.plurals import be, counted
from grange.store.interface import Store


class Protection:
    """The rule.

    Args:
        store: where objects are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, attempt: Attributes) -> None:
        """Let the write pass.

        Raises:
            Forbidden: it would delete a protected object that asks for replicas.
        """
        scale = attempt.info.scale
        if attempt.verb != "delete" or scale is None:
            return
        document = self._read(storage.key(attempt.info, attempt.namespace, attempt.name))
        annotations = lookup(document, "metadata.annotations") or {}
        wanted = lookup(document, scale.replicas) or 0
        if annotations.get(PROTECT_ANNOTATION) != PROTECT_REPLICAS or wanted == 0:
            return
        if self._is_going(attempt.namespace):
            return
        amount = counted(wanted, "replica")
        raise Forbidden(
            f'{attempt.info.qualified} "{attempt.name}" is forbidden: it is protected and asks for '
            f"{amount}: scale it to zero first, or remove its annotation "
            f"{PROTECT_ANNOTATION}",
            kind=attempt.info.plural,
            name=attempt.name,
            group=attempt.info.group,
            causes=[
                Cause(
                    "StillWanted",
                    f"{amount} {be(wanted)} wanted",
                    scale.replicas,
                )
            ],
        )

    def _is_going(self, namespace: str) -> bool:
        document = self._read(f"/core/namespaces/{namespace}")
        return bool(lookup(document, "metadata.deletionTimestamp"))

    def _read(self, key: str) -> dict[str, Any]:
        entry = self._store.latest(key)
        if entry is None:
            return {}
        found: dict[str, Any] = msgspec.json.decode(entry.value, type=dict)
        return found
