"""Whether sessions move: each changes within seconds, or waits for something that runs its course."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from grange.agent.runtimes.fake import FakeMachine
from grange.api import timestamps
from grange.api.kinds import MACHINELEASE, POD, TESTSESSION
from grange.api.kinds.machinelease import MachineLease
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import FINAL_PHASES, ROLE_LABEL, SESSION_UID_LABEL, TestSession
from grange.sim import simulated_nodes
from grange.sim.world import World

MOVES_S = 10.0


class SessionsNow(NamedTuple):
    """All sessions and what belongs to them, read at one moment."""

    sessions: tuple[TestSession, ...]
    pods: tuple[Pod, ...]
    leases: tuple[MachineLease, ...]
    programs: frozenset[str]
    seconds: float

    def pods_of(self, session: TestSession) -> list[Pod]:
        """Pods of a session."""
        uid = session.metadata.uid
        return [pod for pod in self.pods if pod.metadata.labels.get(SESSION_UID_LABEL) == uid]

    def leases_of(self, session: TestSession) -> list[MachineLease]:
        """Leases of a session."""
        uid = session.metadata.uid
        return [one for one in self.leases if one.spec.holder.uid == uid]

    def trace(self, session: TestSession) -> str:
        """What changes when a session moves."""
        pods = [
            (pod.metadata.uid, pod.status.phase, pod.spec.node_name, pod.metadata.resource_version)
            for pod in self.pods_of(session)
        ]
        leases = [(one.metadata.uid, one.status.phase) for one in self.leases_of(session)]
        status = session.status
        return str((status.phase, status.attempt, len(status.events), pods, leases))

    def excuse(self, session: TestSession) -> str:
        """What a session waits for that takes its time; empty if it should move."""
        pods, phase = self.pods_of(session), session.status.phase
        for pod in pods:
            driver = pod.metadata.labels[ROLE_LABEL] == "driver"
            if phase == "Running" and driver and pod.metadata.uid in self.programs:
                return "its driver runs"
            gone = pod.metadata.deletion_timestamp
            due = timestamps.parse(gone).timestamp() if gone else 0.0
            if due > self.seconds:
                return "a pod of it may end until its grace is over"
        others = [one for one in self.sessions if one is not session and is_open(one)]
        if phase in {"", "Queued"} and any(self._is_at_work(one) for one in others):
            return "others have the machines, or the place in its group"
        return ""

    def _is_at_work(self, session: TestSession) -> bool:
        held = any(one.status.phase not in {"", "Queued"} for one in self.leases_of(session))
        return held or session.status.phase not in {"", "Queued", *FINAL_PHASES}


def is_open(session: TestSession) -> bool:
    """Whether a session has not ended, or is being deleted."""
    return session.status.phase not in FINAL_PHASES or bool(session.metadata.deletion_timestamp)


async def read(world: World, machines: Mapping[str, FakeMachine]) -> SessionsNow:
    """Everything about sessions."""
    client = world.client
    return SessionsNow(
        tuple((await client.list(TESTSESSION)).items),
        tuple(
            pod
            for pod in (await client.list(POD)).items
            if SESSION_UID_LABEL in pod.metadata.labels
        ),
        tuple((await client.list(MACHINELEASE)).items),
        frozenset(uid for one in machines.values() for uid in simulated_nodes.running(one)),
        world.clock.now().timestamp(),
    )


async def all_move(
    world: World,
    machines: Mapping[str, FakeMachine],
    unfinished: Callable[[], Awaitable[list[str]]],
    *,
    limit_s: float,
) -> None:
    """Wait until nothing is unfinished; every session moves meanwhile.

    Raises:
        AssertionError: a session did not change for ``MOVES_S`` seconds and waits for nothing that
            takes time, or something is unfinished after ``limit_s`` seconds.
    """
    clock = world.clock
    until = clock.monotonic() + limit_s
    moved: dict[str, tuple[str, float]] = {}
    while left := await unfinished():
        now, found = clock.monotonic(), await read(world, machines)
        for session in filter(is_open, found.sessions):
            uid, trace = session.metadata.uid, found.trace(session)
            if trace != moved.get(uid, ("", 0.0))[0] or found.excuse(session):
                moved[uid] = trace, now
            stood_s = now - moved[uid][1]
            name = session.metadata.name
            assert stood_s <= MOVES_S, (
                f"session {name} stands still for {stood_s:.0f} s: {trace}; {session.status}"
            )
        assert now <= until, f"unfinished after {limit_s:g} s: {left}"
        await clock.sleep(1.0)
