"""A seccomp agent that does not start leaves nothing behind when its pod goes."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from grange.agent.container_runtime import ContainerID, PodSetup, RuntimeFailedError, Sandbox
from grange.agent.runtime_choices import ADDRESSES
from grange.agent.runtimes.cri import bind_notifier
from grange.agent.runtimes.cri.bind_notifier import BindNotifier
from grange.agent.runtimes.cri.cri_files import CriFiles
from grange.agent.runtimes.cri.cri_pod import CriAttempt, CriPod
from grange.base.log import Logger
from grange.base.offload import Inline

REQUEST = {
    "config": {
        "annotations": {},
        "linux": {"security_context": {"privileged": False, "seccomp": {"profile_type": 0}}},
    }
}


class EndingAgents:
    """Starts seccomp agents that end once they have made their path."""

    network = ADDRESSES

    def request(self, operation: str, directory: str, spec: dict[str, object]) -> socket.socket:
        Path(str(spec["socket"])).touch()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.close()
        return ours


class ProfilingRuntime:
    """A container runtime that shows its default profile."""

    async def call(
        self, method: str, request: Mapping[str, Any], limit_s: float | None = None
    ) -> dict[str, Any]:
        info = {"runtimeSpec": {"linux": {"seccomp": {"defaultAction": "SCMP_ACT_ERRNO"}}}}
        return {"container_id": "made", "info": {"info": json.dumps(info)}}

    async def close(self) -> None:
        return None


async def test_failed_seccomp_agent_leaves_no_path(
    log: Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets = tmp_path / "sockets"
    monkeypatch.setattr(bind_notifier, "SOCKETS", sockets)
    notifier = BindNotifier(EndingAgents(), "owner", CriFiles(tmp_path), log=log, offload=Inline())
    setup, sandbox = PodSetup("uid", "default", "a", "node-1"), Sandbox("uid", "127.1.0.2", "/none")
    pod = CriPod(setup, sandbox, "sandbox")
    with pytest.raises(RuntimeFailedError, match="cannot start a seccomp agent"):
        await notifier.create(
            ProfilingRuntime(), pod, CriAttempt(ContainerID("uid", "main", 0)), REQUEST
        )
    assert len(list(sockets.iterdir())) == 1
    notifier.remove(pod)
    assert list(sockets.iterdir()) == []
