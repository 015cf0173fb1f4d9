"""What a machine loads to join: most of the processor time from its start to a Ready node."""

import subprocess
import sys

MODULES_MAX = 760
"""725 at the last change; each ten cost about 10 ms of processor time."""

_CODE = "import sys, grange.app.node_agent; print(*sys.modules)"
_NOT_NEEDED = {
    "boto3",
    "cryptography",  # in the process that makes keys
    "grange.apiserver.application",
    "grange.controllers",
    "grange.machines",
    "grange.scheduler",
    "grange.store.sqlite",
    "grpc",
    "numpy",
    "rich",
    "sqlite3",
    "yaml",
}


def test_agent_loads_only_what_it_needs() -> None:
    command = [sys.executable, "-P", "-c", _CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    loaded = set(done.stdout.split())
    assert "grange.agent.service" in loaded
    assert not loaded & _NOT_NEEDED
    assert len(loaded) <= MODULES_MAX
