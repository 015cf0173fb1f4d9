"""Pods that selectors cannot tell apart: equal namespace, equal labels."""

from grange.api.meta import ObjectMeta
from grange.base.bounded import BoundedDict

_REGISTER_MAX = 50_000


class LabelSet:
    """A namespace and labels; compared by identity, so that tables keyed by it are quick.

    Equal ones with labels in one order are one object until so many were seen that the register is emptied. Nothing relies on
    that for its results.

    Attributes:
        namespace: the namespace.
        labels: the labels.
    """

    __slots__ = ("labels", "namespace")

    def __init__(self, namespace: str, labels: dict[str, str]) -> None:
        self.namespace = namespace
        self.labels = labels


_register: BoundedDict[tuple[object, ...], LabelSet] = BoundedDict(_REGISTER_MAX)


def of(meta: ObjectMeta) -> LabelSet:
    """The kin of a pod with this metadata."""
    key: tuple[object, ...] = (meta.namespace, *meta.labels.items())
    found = _register.get(key)
    if found is None:
        found = _register[key] = LabelSet(meta.namespace, dict(meta.labels))
    return found
