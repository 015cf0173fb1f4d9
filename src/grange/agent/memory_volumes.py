"""Volumes of pods that use memory and no disk: directories of the machine's ``/dev/shm``.

Where they are follows from the path of the pod's directory, so that they are found and deleted by
an agent that knows nothing else of the pod. In the pod's directory a link leads there. Blocks.
"""

import hashlib
import os
import shutil
from pathlib import Path

from grange.agent.container_runtime import RuntimeFailedError

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  each pod has a directory of the agent's user there


def directory_of(pod: Path) -> Path:
    """Where the volumes of a pod with this directory are."""
    name = hashlib.sha256(os.path.realpath(pod).encode()).hexdigest()[:24]
    return SHARED_MEMORY / f"grange-{name}"


def make(pod: Path, link: Path) -> Path:
    """Make a volume, or let it be as it is; the answer is the link to it.

    Args:
        pod: directory of the pod.
        link: that leads to the volume; its name is the volume's.

    Raises:
        OSError: the machine does not allow it.
        RuntimeFailedError: it has no such memory, or the place is another user's.
    """
    top = directory_of(pod)
    if not SHARED_MEMORY.is_dir():
        raise RuntimeFailedError(
            f'volume "{link.name}": medium Memory needs {SHARED_MEMORY}, which this machine does not '
            "have; leave the medium out"
        )
    top.mkdir(mode=0o711, exist_ok=True)
    if top.is_symlink() or top.stat().st_uid != os.geteuid():
        raise RuntimeFailedError(f'volume "{link.name}": {top} is another user\'s; remove it')
    volume = top / link.name
    volume.mkdir(mode=0o700, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(volume)
    return link


def remove(pod: Path) -> None:
    """Delete the volumes of a pod with this directory, if there are any."""
    top = directory_of(pod)
    if not top.is_symlink():
        shutil.rmtree(top, ignore_errors=True)
