"""The keys of one control plane: its own CA, a server certificate and an admin token.

Everything is made on first use, by ``certificates``, and kept in the data directory (directory 0700,
files 0600). The server certificate is renewed when it is near its end or lacks a name that is now
needed; the CA and the token stay, so a kubeconfig that was handed out keeps working.
"""

import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Self

from grange.agent.addresses import api_address
from grange.app.key_files import Keys, KeysUnusable, read
from grange.app.settings import Settings
from grange.base.offload import Threads

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def wanted(settings: Settings) -> tuple[Path, tuple[str, ...]]:
    """Where a control plane keeps its keys, and the names by which clients will know it."""
    own = () if settings.wildcard else (settings.host,)
    service = api_address(str(settings.data_dir))
    return settings.data_dir / "pki", (*LOCAL_NAMES, service, *own, *settings.tls_names)


MakeKeys = Callable[[Path, Sequence[str], datetime], Awaitable[Keys]]
"""Makes what is missing in a directory, for these names, at this time."""


async def in_process(directory: Path, names: Sequence[str], now: datetime) -> Keys:
    """Make the keys here.

    Raises:
        KeysUnusable: the authority or the token is there and cannot be read as such.
    """
    from grange.app import certificates  # large, and needed once

    return certificates.ensure(directory, names=names, now=now)


async def in_child(directory: Path, names: Sequence[str], now: datetime) -> Keys:
    """Make the keys in a separate process, in parallel.

    Raises:
        KeysUnusable: they cannot be made or read.
    """
    child = KeyProcess.start(directory, names)
    try:
        return await child.keys(directory, names, now)
    finally:
        child.end()


def certificates_command(directory: Path, names: Sequence[str]) -> list[str]:
    """The words that make keys; modules never come from the current directory.

    Otherwise a file secrets.py there would choose the admin's token.
    """
    return [sys.executable, "-P", "-m", "grange.app.certificates", str(directory), *names]


class KeyProcess:
    """Creates keys in a separate process, while the start goes on.

    That process takes the library for certificates with it when it ends. Made in the server, keys
    would leave 10.6 MB behind: 84 MB at rest instead of 74, and the goal is 80.

    Args:
        process: as ``start`` has started it.
        directory: where keys are kept.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path) -> None:
        self._process = process
        self._directory = directory
        self._waiting = Threads("keys")

    @classmethod
    def start(cls, directory: Path, names: Sequence[str]) -> Self:
        """Begin.

        Args:
            directory: where keys are kept.
            names: DNS names and addresses that clients will use.
        """
        process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            certificates_command(directory, names),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        return cls(process, directory)

    async def keys(self, directory: Path, names: Sequence[str], now: datetime) -> Keys:
        """The keys, once they are made; for the names and at the time of ``start``.

        Raises:
            KeysUnusable: they cannot be made or read.
        """
        output = await self._waiting.run(self._finished)
        if self._process.returncode:
            lines = output.decode(errors="replace").strip().splitlines()
            raise KeysUnusable(lines[-1] if lines else "keys could not be made")
        return read(self._directory)

    def end(self) -> None:
        """Let go of the process, whether anybody wanted its keys or not."""
        with self._process:
            self._process.kill()
        self._waiting.close()

    def _finished(self) -> bytes:
        """Its errors, once it has ended."""
        output = self._process.stderr.read() if self._process.stderr else b""
        self._process.wait()
        return output
