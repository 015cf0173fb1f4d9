"""Reports what a pod writes about its progress: a file becomes the annotation ``grange.dev/progress``.

Only pods that are created with the annotation are read, so that others cost nothing.
"""

from collections.abc import Callable

from grange.agent.container_runtime import PodRuntime, Sandbox
from grange.api.job_status import PROGRESS
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.client.client import Client

FILE = "progress"
"""Name of the file in the temporary directory that the containers of the pod share."""

INTERVAL_S = 2.0
LIMIT = 1024
"""Bytes of a report; an annotation is read by everybody who reads the pod."""


def is_reporting(pod: Pod) -> bool:
    """Whether the pod asks for its progress to be read."""
    return PROGRESS in pod.metadata.annotations


def variables(pod: Pod, sandbox: Sandbox) -> dict[str, str]:
    """Where the pod's containers write."""
    return {"GRANGE_PROGRESS_FILE": f"{sandbox.tmp}/{FILE}"} if is_reporting(pod) else {}


def report_of(content: bytes) -> str:
    """The last line that is not empty, as one line that can be shown; empty without one."""
    lines = content.decode("utf-8", "replace").split("\n")
    text = next((line for line in reversed(lines) if line.strip()), "")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


async def follow(
    current: Callable[[], Pod], *, runtime: PodRuntime, client: Client, clock: Clock, log: Logger
) -> None:
    """Keep the annotation equal to the file until the pod is gone or cancelled.

    Args:
        current: the newest object of the pod.
        runtime: that runs it.
        client: where the annotation is written, fenced by the UID.
        clock: time.
        log: where failures go.
    """
    written = current().metadata.annotations.get(PROGRESS, "")
    while True:
        await clock.sleep(INTERVAL_S)
        meta = current().metadata
        content = await runtime.read_file(meta.uid, FILE, LIMIT)
        text = report_of(content) if content else ""
        if not text or text == written:
            continue
        patch = {"metadata": {"uid": meta.uid, "annotations": {PROGRESS: text}}}
        try:
            await client.patch(POD, meta.name, meta.namespace, patch=patch)
        except (NotFound, Conflict):
            return
        except ApiError as error:
            log.warning("progress not written", error=error)
        else:
            written = text
