"""Machines that are processes of this computer: what they run, and their end with the control plane."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grange.app.datadir import MACHINES
from grange.app.machine_bootstrap import TAINT
from grange.app.settings import Settings
from grange.machines.providers.local import machine_halt
from grange.machines.providers.local.machine_halt import HaltResult
from grange.machines.providers.local.machine_programs import MachineCommands, MachinePrograms

_STOP_GRACE_S = 5


def provider_settings(settings: Settings, url: str, pin: str) -> Mapping[str, Any]:
    """Settings of the provider ``local``: each machine is an agent of this control plane."""
    command = [*_agent(settings, url), "--ca-hash", pin, "--capacity", "{capacity}"]
    command += ["--taint", TAINT, "--stop-grace", str(_STOP_GRACE_S), "--address", "127.0.0.1"]
    return {
        "directory": str(_directory(settings.data_dir)),
        "command": [*command, "--port", "0"],
        "cleanup": _cleanup(settings),
        "kept": ["pki"],  # its certificate: tokens are for one use
        "environment": dict(settings.environment),
    }


def running(data_dir: Path) -> tuple[str, ...]:
    """Names of the machines of a data directory that run, sorted."""
    return machine_halt.running(_directory(data_dir))


async def halt(settings: Settings) -> HaltResult:
    """End all machines of a data directory; its next control plane starts them again.

    Each has a quarter of a minute to end, and half a minute more where it was not clean.
    """
    commands = MachineCommands((), _cleanup(settings), environment=settings.environment)
    return await machine_halt.halt(_directory(settings.data_dir), MachinePrograms(commands))


def _directory(data_dir: Path) -> Path:
    return data_dir / MACHINES


def _cleanup(settings: Settings) -> list[str]:
    return [*_agent(settings, "https://localhost"), "--end-pods"]  # it connects to nothing


def _agent(settings: Settings, url: str) -> list[str]:
    command = [sys.executable, "-m", "grange", "agent", "--server", url]
    command += ["--node-name", "{machine}", "--data-dir", "{data}", "--runtime", settings.runtime]
    command += ["--isolation", settings.isolation, "--network", settings.network]
    return [*command, "--eviction-hard", settings.eviction]
