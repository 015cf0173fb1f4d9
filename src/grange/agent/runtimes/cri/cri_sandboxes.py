"""Calls about sandboxes and what is in them. All of them raise ``CriError``."""

from grange.agent.runtimes.cri import cri_client
from grange.agent.runtimes.cri.cri_client import CriClient, CriError

_READY = 0


async def is_ready(client: CriClient, sandbox_id: str) -> bool:
    """Whether the sandbox is there and runs."""
    try:
        answer = await client.call("PodSandboxStatus", {"pod_sandbox_id": sandbox_id})
    except CriError as error:
        if error.code == cri_client.NOT_FOUND:
            return False
        raise
    return int((answer.get("status") or {}).get("state", 0)) == _READY


async def remove(client: CriClient, sandbox_id: str) -> None:
    """Stop a sandbox with its containers, and remove it; one that is gone is left."""
    for method in ("StopPodSandbox", "RemovePodSandbox"):
        try:
            await client.call(method, {"pod_sandbox_id": sandbox_id})
        except CriError as error:
            if error.code != cri_client.NOT_FOUND:
                raise


async def remove_unstarted(client: CriClient, container_id: str) -> bool:
    """Remove a container; False where it is being started, as an earlier agent has asked."""
    try:
        await client.call("RemoveContainer", {"container_id": container_id})
    except CriError as error:
        if "starting" not in error.message:
            raise
        return False
    return True
