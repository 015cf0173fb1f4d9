"""Members of a farm in a world, who sign everything they do."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.support.memory_sink import MemorySink

from grange.api.farm_protocol import OWNER_ANNOTATION
from grange.api.kinds import CONFIGMAP, REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document, ObjectKey
from grange.api.status import AlreadyExists, ApiError, NotFound
from grange.base.clock import Clock
from grange.base.errors import invariant
from grange.reconcile.controller import Done, Requeue, Result
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.deletion_guard import DeletionGuardConfig
from grange.reconcile.farm.farm import Farm
from grange.reconcile.farm.fenced_client import at_work
from grange.reconcile.farm.leases import Token
from grange.reconcile.farm.member import Member
from grange.sim.invariants import ObservedWrite
from grange.sim.world import World

FARM = "replication"
NAMESPACE = "default"
STUBBORN_WRITES = 10
SIGNED, ABOUT = "signed-by", "about"


def service(name: str, replicas: int = 1, **labels: str) -> Document:
    container = {"name": "main", "command": ["serve"]}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
    }


async def create(world: World, *names: str, replicas: int = 1, **labels: str) -> None:
    for name in names:
        await world.client.create(REPLICATIONCONTROLLER, service(name, replicas, **labels))


async def owners(world: World) -> dict[str, str]:
    """Each object with the member that it names, empty for none."""
    found = {}
    for obj in (await world.client.list(REPLICATIONCONTROLLER)).items:
        token = Token.parse(obj.metadata.annotations.get(OWNER_ANNOTATION, ""))
        found[obj.metadata.name] = token.member if token is not None else ""
    return found


def loads(owned: dict[str, str]) -> dict[str, int]:
    """How many each member has."""
    found: dict[str, int] = {}
    for member in owned.values():
        found[member] = found.get(member, 0) + 1
    return dict(sorted(found.items()))


class OneWriter:
    """A signed write reaches the store only while its object bears the signer's name."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, str, str]] = []
        self._owners: dict[str, str] = {}

    def see(self, change: ObservedWrite) -> None:
        meta = change.document["metadata"]
        if change.concerns(REPLICATIONCONTROLLER):
            owner = (meta.get("annotations") or {}).get(OWNER_ANNOTATION, "")
            if change.deleted:  # its last writer cannot know yet, and no other member writes for it
                self._owners.pop(change.uid, None)
            else:
                self._owners[change.uid] = owner
        elif change.concerns(CONFIGMAP) and not change.deleted:
            signed = (change.document.get("data") or {}).get(SIGNED)
            if signed is None:
                return
            about = change.document["data"][ABOUT]
            self.writes.append((change.revision, meta["name"], signed))
            invariant(
                about not in self._owners or self._owners[about] == signed,
                "an object has one writer at a time",
                object=meta["name"],
                uid=about,
                owner=self._owners.get(about),
                writer=signed,
                revision=change.revision,
            )


@dataclass
class Hand:
    """One member over all its lives.

    Attributes:
        name: of the member and of its component.
        lives: what was made for each life, the last one running.
        passes: (seconds, object) of every pass that began.
        alerts: what it raised.
        busy_s: how long a pass takes between its two writes.
        again_s: how soon an object is looked at again.
        bad: objects whose passes crash.
        act: what a pass does, instead of signing twice.
        stubborn: passes that are cancelled go on writing for a while.
    """

    name: str
    clock: Clock
    busy_s: float = 0.0
    again_s: float = 5.0
    lives: list[tuple[Member, Farm[ReplicationController]]] = field(default_factory=list)
    passes: list[tuple[float, str]] = field(default_factory=list)
    alerts: MemorySink = field(default_factory=MemorySink)
    bad: set[str] = field(default_factory=set)
    act: Callable[["Hand", ObjectKey], Awaitable[Result]] | None = None
    stubborn: bool = False

    @property
    def member(self) -> Member:
        return self.lives[-1][0]

    @property
    def farm(self) -> Farm[ReplicationController]:
        return self.lives[-1][1]

    @property
    def held(self) -> list[str]:
        return sorted(key.name for key in self.farm.held())

    async def reconcile(self, key: ObjectKey) -> Result:
        self.passes.append((self.clock.monotonic(), key.name))
        if key.name in self.bad:
            raise ZeroDivisionError(key.name)
        if self.act is not None:
            return await self.act(self, key)
        await self.sign(key)
        try:
            await self.clock.sleep(self.busy_s)
        except asyncio.CancelledError:
            for _ in range(STUBBORN_WRITES if self.stubborn else 0):
                with suppress(ApiError):
                    await self.sign(key)  # as if it had not heard
                await self.clock.sleep(1.0)
            raise
        await self.sign(key)
        return Requeue(self.again_s)

    async def sign(self, key: ObjectKey) -> None:
        """Write about an object, without any precondition, signed with the session."""
        claim = at_work.get()
        invariant(claim is not None, "a pass has its claim", key=key)
        data = {
            SIGNED: str(claim.session.token) if claim is not None else "",
            ABOUT: claim.uid if claim is not None else "",
            "at": f"{self.clock.monotonic():.6f}",
        }
        client = self.farm.client
        try:
            await client.patch(CONFIGMAP, key.name, NAMESPACE, patch={"data": data})
        except NotFound:
            document = {"metadata": {"name": key.name, "namespace": NAMESPACE}, "data": data}
            try:
                await client.create(CONFIGMAP, document)
            except AlreadyExists:
                return


def join(  # what can be different about a member
    world: World,
    name: str,
    *,
    selector: str = "",
    clock: Clock | None = None,
    config: FarmConfig | None = None,
    deletion_guard: DeletionGuardConfig | None = None,
    busy_s: float = 0.0,
    again_s: float = 5.0,
    act: Callable[[Hand, ObjectKey], Awaitable[Result]] | None = None,
    component: str = "",
) -> Hand:
    hand = Hand(name, clock or world.clock, busy_s=busy_s, again_s=again_s, act=act)

    def factory(deps: Deps) -> Member:
        member = Member(deps, config or FarmConfig(member=name), alert_sink=hand.alerts)
        farm = member.farm(
            FARM,
            REPLICATIONCONTROLLER,
            selector=selector,
            reconcile=hand.reconcile,
            weight=lambda obj: obj.spec.replicas,
            deletion_guard=deletion_guard,
        )
        hand.lives.append((member, farm))
        return member

    world.add(component or name, factory, clock=clock)
    return hand


async def nothing(hand: Hand, key: ObjectKey) -> Result:
    """A pass that writes nothing."""
    return Done()
