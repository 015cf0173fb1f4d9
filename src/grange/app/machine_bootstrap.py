"""How machines of pools join: a token for one use each, and the user data that have it."""

import hashlib
from datetime import timedelta

from grange.api import bootstrap_tokens, timestamps
from grange.api.bootstrap_tokens import BootstrapToken
from grange.api.kinds import SECRET
from grange.api.kinds.machine import STARTUP_TAINT, Machine
from grange.api.kinds.nodepool import USER_DATA, NodePoolSpec
from grange.api.status import AlreadyExists, NotFound
from grange.app import key_files
from grange.base.clock import Clock
from grange.client.client import Client
from grange.machines.bootstrap.agent_package import AgentPackage
from grange.machines.bootstrap.join_facts import JoinFacts
from grange.machines.bootstrap.user_data import compose_user_data
from grange.machines.bootstrap.user_data_template import TOKEN_GROUPS
from grange.machines.controller.machine_boot import BootSecrets
from grange.machines.controller.machine_lifecycle import boot_seconds

TAINT = f"{STARTUP_TAINT}=true:NoSchedule"
_IDS = 8  # names of tokens that a machine tries
_SPARE_S = 60


class JoinBootstrap:
    """Prepares machines that join this cluster.

    Args:
        client: stores tokens.
        server: URL of the API server, as machines reach it.
        ca_hash: hash of its authority.
        clock: time.
        package: what machines install.
    """

    def __init__(
        self,
        client: Client,
        server: str,
        ca_hash: str,
        clock: Clock,
        package: AgentPackage | None = None,
    ) -> None:
        self._client, self._server, self._ca_hash = client, server, ca_hash
        self._clock, self._package = clock, package or AgentPackage()

    async def prepare(self, machine: Machine, pool: NodePoolSpec) -> BootSecrets:
        """The token of a machine, the same one until it ends, and its user data.

        Raises:
            MisconfiguredError: the pool's user data are malformed.
            ApiError: the token could not be stored.
        """
        token = await self._token(machine, pool)
        name = machine.metadata.name
        # Labels of pools are for the controller to set: agents may not choose them.
        facts = JoinFacts(
            self._server, token, self._ca_hash, name, machine.spec.pool, taints=(TAINT,)
        )
        return BootSecrets(compose_user_data(pool, facts, self._package), token)

    async def finish(self, machine: Machine) -> None:
        """Delete the token of a machine that has joined or will not.

        Raises:
            ApiError: it could not be deleted; it expires.
        """
        for token_id in token_ids(machine):
            found = await self._read(token_id)
            if found is None:
                return
            if found.node == machine.metadata.name:
                name = bootstrap_tokens.secret_name(token_id)
                await self._client.delete(SECRET, name, bootstrap_tokens.NAMESPACE)
                return

    async def _token(self, machine: Machine, pool: NodePoolSpec) -> str:
        started = timestamps.parse_or(machine.status.launch_time, self._clock.now())
        ends = started + timedelta(seconds=boot_seconds(machine, pool.timeouts) + _SPARE_S)
        for token_id in token_ids(machine):
            token = BootstrapToken(
                token_id,
                key_files.random_text(bootstrap_tokens.ALPHABET, bootstrap_tokens.SECRET_LENGTH),
                expires=ends,
                node=machine.metadata.name,
                once=True,
                groups=TOKEN_GROUPS if pool.bootstrap == USER_DATA else (),
                description=f"machine {machine.metadata.name}",
            )
            try:
                await self._client.create(
                    SECRET, bootstrap_tokens.document(token), bootstrap_tokens.NAMESPACE
                )
            except AlreadyExists:
                found = await self._read(token_id)
                if found is None or found.node != machine.metadata.name:
                    continue
                token = found  # of an earlier launch of the machine
            return f"{token.id}.{token.secret}"
        raise AlreadyExists(f"all tokens of machine {machine.metadata.name} are taken")

    async def _read(self, token_id: str) -> BootstrapToken | None:
        try:
            name = bootstrap_tokens.secret_name(token_id)
            secret = await self._client.get(SECRET, name, bootstrap_tokens.NAMESPACE)
        except NotFound:
            return None
        return bootstrap_tokens.read(secret)


def token_ids(machine: Machine) -> list[str]:
    """The public halves that tokens of a machine may have, in the order in which they are tried."""
    found = []
    for attempt in range(_IDS):
        seed = f"{machine.metadata.uid}/{attempt}".encode()
        found.append(hashlib.sha256(seed).hexdigest()[: bootstrap_tokens.ID_LENGTH])
    return found
