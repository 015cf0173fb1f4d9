"""Connections to hosts: the keys that are accepted, and what errors mean."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import asyncssh

from grange.base.clock import Clock
from grange.machines.providers import ReadSecret
from grange.machines.providers.provider import MisconfiguredError, ProviderError
from grange.machines.providers.ssh.ssh_config import SshConfig, SshHost

KEY = "ssh-privatekey"
_CONNECT_S, _COMMAND_S = 10.0, 40.0
_ALIVE_S = 15.0


class HostUnreachable(ProviderError):
    """No connection to the host: this call has done nothing."""


class HostConnections:
    """One connection to each host, made when it is needed.

    Args:
        config: of the pool.
        read_secret: reads the key.
        clock: of the limits.
    """

    def __init__(self, config: SshConfig, read_secret: ReadSecret, clock: Clock) -> None:
        self._config, self._read_secret, self._clock = config, read_secret, clock
        self._open: dict[str, asyncssh.SSHClientConnection] = {}
        self._locks = {host.name: asyncio.Lock() for host in config.hosts}
        self._key: Any = None

    async def run(
        self, host: SshHost, script: str, arguments: Sequence[str], user_data: str = ""
    ) -> str:
        """Run a script on a host and return what it writes.

        Raises:
            HostUnreachable: there is no connection; nothing was done.
            MisconfiguredError: the host's key or ours is refused.
            ProviderError: it has failed, or it is not known whether it was done.
        """
        words = ["sh", "-c", script, "sh", host.directory, *arguments]
        command = shlex.join((["sudo", "-n"] if host.sudo else []) + words)
        connection = await self._connection(host)
        try:
            async with self._clock.timeout(_COMMAND_S):
                # Input is ended only where there is some.
                given = {"input": user_data} if user_data else {"stdin": asyncssh.DEVNULL}
                done = await connection.run(command, check=False, **given)
        except (OSError, asyncssh.Error, TimeoutError) as error:
            await self._drop(host)
            raise ProviderError(f"host {host.name}: {_why(error)}; it is tried again") from error
        if done.exit_status != 0:
            lines = str(done.stderr or "").strip().splitlines()
            detail = lines[-1] if lines else f"exit code {done.exit_status}"
            raise ProviderError(f"host {host.name}: {detail}; look at the host")
        return str(done.stdout or "")

    async def close(self) -> None:
        """End all connections."""
        for host in self._config.hosts:
            async with self._locks[host.name]:
                await self._drop(host)

    async def _connection(self, host: SshHost) -> asyncssh.SSHClientConnection:
        async with self._locks[host.name]:
            known = self._open.get(host.name)
            if known is not None and not known.is_closed():
                return known
            self._open.pop(host.name, None)
            options = await self._options()
            try:
                async with self._clock.timeout(_CONNECT_S):
                    made = await asyncssh.connect(
                        host.address, host.port, username=host.user, **options
                    )
            except asyncssh.HostKeyNotVerifiable as error:
                raise MisconfiguredError(
                    f"host {host.name}: its key is not in spec.providerConfig.knownHosts; "
                    "check it and add it"
                ) from error
            except asyncssh.PermissionDenied as error:
                raise MisconfiguredError(
                    f"host {host.name}: user {host.user} is refused; authorize the key of secret "
                    f"{self._config.key_secret}"
                ) from error
            except (OSError, asyncssh.Error, TimeoutError) as error:
                raise HostUnreachable(
                    f"host {host.name}: cannot be reached: {_why(error)}; repair it or remove it"
                ) from error
            self._open[host.name] = made
            return made

    async def _options(self) -> Mapping[str, Any]:
        """What connections have in common; nothing of the user of this process is read."""
        if self._key is None:
            name = self._config.key_secret
            text = (await self._read_secret(name)).get(KEY)
            if text is None:
                raise MisconfiguredError(f"secret {name}: has no {KEY}; add it")
            try:
                self._key = asyncssh.import_private_key(text)
            except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
                raise MisconfiguredError(
                    f"secret {name}: {KEY} is no private key; replace it"
                ) from error
        try:
            known_hosts = asyncssh.import_known_hosts(self._config.known_hosts)
        except ValueError as error:
            raise MisconfiguredError(
                f"spec.providerConfig.knownHosts: {error}; repair it"
            ) from error
        return {
            "client_keys": [self._key],
            "known_hosts": known_hosts,
            "config": None,
            "agent_path": None,
            "x509_trusted_certs": None,
            "preferred_auth": "publickey",
            "keepalive_interval": _ALIVE_S,
        }

    async def _drop(self, host: SshHost) -> None:
        connection = self._open.pop(host.name, None)
        if connection is not None:
            connection.abort()
            await connection.wait_closed()


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__
