"""Hosts behind OpenSSH's server, one process each, on loopback."""

import asyncio
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh
from tests.support.own_port import own_port
from tests.support.ssh_hosts import SshHosts

from grange.base.clock import Clock

_PRIVILEGES = Path("/run/sshd")  # where root's server puts its unprivileged half
_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
"""
_LIMIT_S = 60.0


def program() -> str | None:
    """OpenSSH's server; None where it is not installed. See scripts/setup_sshd.sh."""
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@dataclass
class OpenSshHosts(SshHosts):
    """Running hosts; the user who runs the tests logs in."""

    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def authorized_keys(self, name: str) -> Path:
        """The keys that may log in to a host."""
        return self.root / name / "authorized_keys"

    async def add(self, name: str) -> None:
        """Start a host, and wait until it answers."""
        await asyncio.to_thread(self._start, name)
        async with self.clock.timeout(_LIMIT_S):
            while not await asyncio.to_thread(_answers, self.ports[name]):
                assert self.processes[name].poll() is None
                await self.clock.sleep(0.05)

    def _start(self, name: str) -> None:
        directory = self.root / name
        directory.mkdir(exist_ok=True)
        key = self.host_keys.setdefault(name, asyncssh.generate_private_key("ssh-ed25519"))
        port = self.ports.setdefault(name, own_port(len(self.ports)))
        for file, content in (
            (directory / "host_key", key.export_private_key()),
            (self.authorized_keys(name), self.key.export_public_key()),
        ):
            file.write_bytes(content)
            file.chmod(0o600)
        config = directory / "sshd_config"
        config.write_text(_CONFIG.format(port=port, directory=directory))
        if os.geteuid() == 0:
            _PRIVILEGES.mkdir(mode=0o755, exist_ok=True)
        found = program()
        assert found is not None
        self.processes[name] = subprocess.Popen([found, "-D", "-e", "-f", str(config)])

    async def remove(self, name: str) -> None:
        """End its server; what runs there goes on."""
        process = self.processes.pop(name)
        process.terminate()
        await asyncio.to_thread(process.wait, _LIMIT_S)

    def config(self, **more: object) -> dict[str, object]:
        """Of a pool with all hosts."""
        made = super().config(**more)
        hosts = made["hosts"]
        assert isinstance(hosts, list)
        return made | {"hosts": [one | {"user": getpass.getuser()} for one in hosts]}


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


@asynccontextmanager
async def openssh_hosts(root: Path, clock: Clock, *names: str) -> AsyncIterator[OpenSshHosts]:
    """Hosts that are gone at the end."""
    hosts = OpenSshHosts(root, clock)
    try:
        for name in names:
            await hosts.add(name)
        yield hosts
    finally:
        for name in [*hosts.processes]:
            await hosts.remove(name)
