"""Hosts with real shells behind an SSH server on loopback; a port is a host."""

import asyncio
import shlex
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers import ProviderTools, create_provider
from grange.machines.providers.provider import Provider

SECRET = "hosts"  # noqa: S105  the name of one
CLEAN = "set -eu\nrm -f left\n"


@dataclass
class SshHosts:
    """Running hosts.

    Attributes:
        root: what hosts have is below it, by their names.
        clock: of providers.
        key: private key that is authorized everywhere.
        servers: by the name of the host.
        host_keys, ports, connections: of the servers.
        commands: how many were run.
    """

    root: Path
    clock: Clock
    key: Any = field(default_factory=lambda: asyncssh.generate_private_key("ssh-ed25519"))
    servers: dict[str, Any] = field(default_factory=dict)
    host_keys: dict[str, Any] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    connections: dict[str, set[Any]] = field(default_factory=dict)
    commands: int = 0

    def directory(self, name: str) -> Path:
        """Where a host keeps claims."""
        return self.root / name / "machine"

    async def add(self, name: str) -> None:
        """Start a host, again on its port with its key where it was there before."""
        key = self.host_keys.setdefault(name, asyncssh.generate_private_key("ssh-ed25519"))
        (self.root / name).mkdir(exist_ok=True)
        self.servers[name] = await asyncssh.listen(
            "127.0.0.1",
            self.ports.get(name, 0),
            server_host_keys=[key],
            authorized_client_keys=asyncssh.import_authorized_keys(
                self.key.export_public_key().decode()
            ),
            process_factory=lambda process: self._serve(name, process),
        )
        self.ports[name] = self.servers[name].get_port()

    async def remove(self, name: str) -> None:
        """The host cannot be reached; what runs there goes on."""
        server = self.servers.pop(name)
        server.close()
        for connection in self.connections.pop(name, ()):
            connection.abort()
        await server.wait_closed()

    def config(self, **more: object) -> dict[str, object]:
        """Of a pool with all hosts."""
        known = [
            f"[127.0.0.1]:{self.ports[name]} {key.export_public_key().decode()}"
            for name, key in self.host_keys.items()
        ]
        hosts = [
            {
                "name": name,
                "address": "127.0.0.1",
                "port": port,
                "directory": str(self.directory(name)),
            }
            for name, port in self.ports.items()
        ]
        clean = f"cd {shlex.quote(str(self.root))}\n{CLEAN}"
        return {
            "hosts": hosts,
            "types": {"rack": {"cpu": "8", "memory": "32Gi", "price": "0.1"}},
            "keySecret": SECRET,
            "knownHosts": "".join(known),
            "release": clean,
            "wipe": clean,
            **more,
        }

    def provider(self, cluster: str = "ours", **config: object) -> Provider:
        """A provider of all hosts."""
        tools = ProviderTools(
            cluster, self.clock, Stream(1), Logger("test"), read_secret=self._read_secret
        )
        return create_provider("ssh", self.config(**config), tools)

    async def _read_secret(self, name: str) -> Mapping[str, bytes]:
        return {"ssh-privatekey": self.key.export_private_key()} if name == SECRET else {}

    async def _serve(self, name: str, process: Any) -> None:
        self.commands += 1
        connection = process.get_extra_info("connection")
        self.connections.setdefault(name, set()).add(connection)
        # Not by the loop: what one starts in the background holds its pipes.
        done = await asyncio.to_thread(
            subprocess.run,
            ["/bin/sh", "-c", process.command],
            cwd=self.root,
            input=await process.stdin.read(),
            capture_output=True,
            text=True,
        )
        process.stdout.write(done.stdout)
        process.stderr.write(done.stderr)
        process.exit(done.returncode)


@asynccontextmanager
async def ssh_hosts(root: Path, clock: Clock, *names: str) -> AsyncIterator[SshHosts]:
    """Hosts that are gone at the end."""
    hosts = SshHosts(root, clock)
    for name in names:
        await hosts.add(name)
    try:
        yield hosts
    finally:
        for name in [*hosts.servers]:
            await hosts.remove(name)
