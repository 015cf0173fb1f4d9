"""Parts of objects with a path of their own: one module a subresource, one line in ``TABLE``.

A kind names the ones it has (``KindInfo.subresources``, and ``status`` by ``has_status``).
"""

from grange.api.scheme import AnyKind
from grange.apiserver.subresources import binding, eviction, finalize, log, status
from grange.apiserver.subresources.subresource import Subresource

TABLE: tuple[Subresource, ...] = (
    status.STATUS,
    binding.BINDING,
    eviction.EVICTION,
    log.LOG,
    finalize.FINALIZE,
)
_BY_NAME = {item.name: item for item in TABLE}


def of(info: AnyKind) -> list[Subresource]:
    """The subresources of a kind that are served."""
    names = (*(("status",) if info.has_status else ()), *info.subresources)
    return [_BY_NAME[name] for name in dict.fromkeys(names) if name in _BY_NAME]


def find(info: AnyKind, name: str) -> Subresource | None:
    """The kind's subresource of this name, or None."""
    found = _BY_NAME.get(name)
    if found is None or (name != "status" and name not in info.subresources):
        return None
    return found if name != "status" or info.has_status else None
