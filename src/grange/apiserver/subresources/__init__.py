"""Parts of objects with their own path: one module a subresource, one line in ``TABLE``.

A kind names the ones it has (``KindInfo.parts``).
"""

from grange.api.scheme import AnyKind
from grange.apiserver.subresources import (
    approval,
    audit,
    binding,
    ephemeral_containers,
    eviction,
    finalize,
    log,
    plan,
    resize,
    scale,
    status,
    streams,
    token,
    why,
)
from grange.apiserver.subresources.subresource import Subresource

TABLE: tuple[Subresource, ...] = (
    status.STATUS,
    scale.SCALE,
    binding.BINDING,
    eviction.EVICTION,
    ephemeral_containers.EPHEMERAL_CONTAINERS_SUBRESOURCE,
    resize.RESIZE_SUBRESOURCE,
    log.LOG,
    streams.EXEC_SUBRESOURCE,
    streams.ATTACH_SUBRESOURCE,
    streams.PORT_FORWARD_SUBRESOURCE,
    streams.TUNNEL_SUBRESOURCE,
    finalize.FINALIZE,
    token.TOKEN,
    why.WHY,
    approval.APPROVAL,
    plan.PLAN,
    audit.AUDIT,
)
_BY_NAME = {item.name: item for item in TABLE}


def of(info: AnyKind) -> list[Subresource]:
    """The subresources of a kind that are served."""
    return [_BY_NAME[name] for name in dict.fromkeys(info.parts) if name in _BY_NAME]


def find(info: AnyKind, name: str) -> Subresource | None:
    """The kind's subresource of this name, or None."""
    return _BY_NAME.get(name) if name in info.parts else None
