"""DefaultBinder: writes the pods' ``binding`` subresources."""

from collections.abc import Sequence

import msgspec

from grange.api import gpus
from grange.api.bindings import Binding
from grange.api.status import ApiError
from grange.client.client import Client
from grange.placement import devices
from grange.scheduler.framework import Plugin
from grange.scheduler.podinfo import PodInfo


async def _bind(
    client: Client, placements: Sequence[tuple[PodInfo, str]]
) -> Sequence[ApiError | None]:
    """Fenced by the UID; the server refuses a pod that is bound already."""
    group = []
    for info, node_name in placements:
        meta = info.pod.metadata
        binding = Binding(meta.namespace, meta.name, meta.uid, node_name)
        if info.devices:
            held = {gpus.ANNOTATION: devices.written(info.devices)}
            binding = msgspec.structs.replace(binding, annotations=held)
        group.append(binding)
    return await client.bind(group)


PLUGIN = Plugin("DefaultBinder", bind=_bind)
