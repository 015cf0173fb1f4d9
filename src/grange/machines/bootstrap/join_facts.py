"""What a machine is given so that it can join."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from grange.machines.providers.provider import MisconfiguredError

_PLAIN = re.compile(r"[A-Za-z0-9._:/,=@+\[\]-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class JoinFacts:
    """What a machine is given; each value can stand in a script without quotes.

    Attributes:
        server: URL of the API server, as machines reach it.
        token: bootstrap token, for one use, for this machine's node, valid for its boot.
        ca_hash: hash of the server's authority, ``sha256:HEX``.
        machine: name of the Machine and of its node.
        pool: name of the NodePool.
        labels: of the node.
        taints: of the node, ``KEY=VALUE:EFFECT``.
    """

    server: str
    token: str = field(repr=False)
    ca_hash: str
    machine: str
    pool: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()

    def variables(self) -> dict[str, str]:
        """The values by the name that templates give them.

        Raises:
            MisconfiguredError: a value has a character that shells treat specially.
        """
        url = urlsplit(self.server)
        host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname or ""
        found = {
            "server": self.server,
            "endpoint": f"{host}:{url.port or 443}",
            "token": self.token,
            "caHash": self.ca_hash,
            "machine": self.machine,
            "pool": self.pool,
            "labels": ",".join(f"{key}={value}" for key, value in sorted(self.labels.items())),
            "taints": ",".join(self.taints),
        }
        for name, value in found.items():
            if not _PLAIN.fullmatch(value):
                shown = "" if name == "token" else f" {value!r}"
                raise MisconfiguredError(
                    f"{name}{shown} of machine {self.machine}: cannot stand in a script; change it"
                )
        return found
