"""What a machine loads to join: most of the processor time from its start to a Ready node."""

import subprocess
import sys

MODULES_MAX = 710
"""696 at the last change; each ten cost about 10 ms of processor time."""

MODULES_BEFORE_KEYS_MAX = 400
"""386 at the last change: until then, nothing loads the library that makes the machine's key."""

_NOT_NEEDED = {
    "boto3",
    "cryptography",  # in the process that makes keys
    "grange.apiserver.application",
    "grange.apiserver.registry",
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


def _loaded(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return set(done.stdout.split())


def test_agent_loads_only_what_it_needs() -> None:
    loaded = _loaded("grange.app.joined_node")
    assert "grange.agent.service" in loaded
    assert not loaded & _NOT_NEEDED
    assert len(loaded) <= MODULES_MAX


def test_process_for_keys_starts_before_the_rest_is_loaded() -> None:
    loaded = _loaded("grange.app.node_agent")
    assert "grange.app.certificate_process" in loaded
    assert not loaded & {"aiohttp", "grange.agent.service", "grange.app.joined_node"}
    assert len(loaded) <= MODULES_BEFORE_KEYS_MAX
