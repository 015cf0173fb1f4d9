"""Which machines without pods a pool keeps as standby, and how many it lacks.

A machine that its pool would not make like this any more, or that is too old, is replaced: it does not
count, and stays only until another one is ready in its place.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from grange.api import timestamps
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import DO_NOT_DISRUPT_ANNOTATION, NodePool
from grange.api.machine_phases import MachinePhase
from grange.machines.scaling.machine_facts import OFF, is_spot, type_of
from grange.machines.scaling.machine_readiness import readiest_first
from grange.machines.scaling.pod_needs import gib, machine_gib
from grange.machines.scaling.standby import StandbyShape

_P = MachinePhase
_STOPPING = _P.STOPPING.value  # compared as text: it is looked at for each machine


class KeptStandby:
    """Chooses standby machines of one pool at one time; ``choose`` for dedicated pools, ``keep`` for all.

    Args:
        pool: whose.
        boot_image: of new machines; empty where it is not known.
        template_hash: of the pool's present template.
        now: wall time.
    """

    def __init__(
        self, pool: NodePool, *, boot_image: str, template_hash: str, now: datetime
    ) -> None:
        self._default_gib = gib(pool.spec.volume.default_size)
        self._boot_image, self._template_hash = boot_image, template_hash
        self._expire_s = pool.spec.disruption.expire_after_seconds
        self._now = now

    def choose(
        self, free: Iterable[Machine], shape: StandbyShape, count: int
    ) -> tuple[list[Machine], int]:
        """The machines to keep for a shape, and how many are to be ordered.

        Args:
            free: machines without pods, and those that are being switched off.
            shape: of the standby.
            count: how many to keep.
        """
        fitting = [machine for machine in free if self._fits(machine, shape)]
        return self.keep(sorted(fitting, key=_order(shape)), shape, count)

    def keep(
        self, fitting: Iterable[Machine], shape: StandbyShape, count: int
    ) -> tuple[list[Machine], int]:
        """The machines to keep of those that are of a shape, and how many are to be ordered.

        Args:
            fitting: the best first.
            shape: of the standby.
            count: how many to keep.
        """
        present: list[Machine] = []
        outdated: list[Machine] = []
        for machine in fitting:
            (outdated if self._is_outdated(machine) else present).append(machine)
        present = present[:count]
        ready_phase = _P.STOPPED if shape.stopped else _P.AVAILABLE
        ready = sum(machine.phase is ready_phase for machine in present)
        return [*present, *outdated[: count - ready]], count - len(present)

    def _fits(self, machine: Machine, shape: StandbyShape) -> bool:
        """Whether a machine is as those that are ordered for standby, so that any such pod can use it."""
        resources = machine.spec.resources
        return (
            type_of(machine) == shape.instance_type
            and is_spot(machine) == shape.spot
            and (shape.stopped or machine.phase not in OFF)
            and not resources.private_ip_only
            and not resources.dedicated_cpu
            and not machine.spec.placement.zone
            and (machine_gib(machine) or self._default_gib) == self._default_gib
        )

    def _is_outdated(self, machine: Machine) -> bool:
        meta, spec = machine.metadata, machine.spec
        if meta.annotations.get(DO_NOT_DISRUPT_ANNOTATION) == "true":
            return False
        return (
            _differs(spec.template_hash, self._template_hash)
            or _differs(spec.boot_image, self._boot_image)
            or self._is_expired(machine)
        )

    def _is_expired(self, machine: Machine) -> bool:
        # One that boots is not: it would be replaced again and again where the boot takes longer.
        if not self._expire_s or machine.phase not in (_P.AVAILABLE, _P.STOPPED):
            return False
        created = timestamps.parse_or(machine.metadata.creation_timestamp, self._now)
        return self._now - created >= timedelta(seconds=self._expire_s)


def is_being_switched_off(machine: Machine) -> bool:
    """Whether a machine will be off, to be kept: standby already, but for no pod."""
    return machine.status.phase == _STOPPING and not machine.is_ending


def _differs(has: str, wanted: str) -> bool:
    """Whether two facts are known and not the same."""
    return bool(has and wanted) and has != wanted


def _order(shape: StandbyShape) -> Callable[[Machine], tuple[bool, int, str, str]]:
    """What is off or will be goes first for stopped standby, else what is readiest."""

    def key(machine: Machine) -> tuple[bool, int, str, str]:
        return (shape.stopped and machine.phase not in OFF, *readiest_first(machine))

    return key
