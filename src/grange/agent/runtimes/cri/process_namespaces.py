"""By which namespace a process is known as a container's."""

import json
import os
from collections.abc import Iterable

from grange.agent import listening_sockets
from grange.agent.container_runtime import ListeningSocket
from grange.agent.runtimes.cri.cri_client import CriClient, CriError
from grange.agent.runtimes.cri.cri_pod import CriPod
from grange.base.offload import Offload


async def of_container(client: CriClient, container_id: str) -> str:
    """The process namespace of a container; empty if it cannot be found out."""
    request = {"container_id": container_id, "verbose": True}
    try:
        answer = await client.call("ContainerStatus", request)
        info = json.loads((answer.get("info") or {}).get("info", "{}"))
        return of_process(int(info.get("pid", 0)))
    except (CriError, ValueError, TypeError, AttributeError):
        return ""


def of_process(pid: int) -> str:
    """The process namespace of a process; empty if it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


async def listeners(
    client: CriClient, pods: Iterable[CriPod], offload: Offload
) -> list[ListeningSocket]:
    """The TCP ports that containers listen on.

    Of a pod whose containers share their processes, the last one has them all; what a container
    with the machine's processes listens on is not found.

    Args:
        client: to the container runtime.
        pods: all there are.
        offload: for reading processes and sockets.
    """
    owners: dict[str, tuple[str, str]] = {}
    for pod in pods:
        for attempt in pod.all_attempts():
            if attempt.is_running:
                namespace = await of_container(client, attempt.container_id)
                owners[namespace] = attempt.target[:2]
    for namespace in ("", of_process(os.getpid())):
        owners.pop(namespace, None)
    if not owners:
        return []
    return await offload.run(
        lambda: listening_sockets.find(lambda pid: owners.get(of_process(pid)))
    )
