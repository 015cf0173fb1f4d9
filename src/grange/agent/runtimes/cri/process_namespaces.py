"""By which namespace a process is known as a container's."""

import json
import os

from grange.agent.runtimes.cri.cri_client import CriClient, CriError


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
