"""Settings of the machine lease controller."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MachineLeaseConfig:
    """How the controller works; durations in seconds.

    Attributes:
        workers: leases that are looked at at the same time.
        settle_s: after its own start, the first node, and after a pool grew, nothing is rejected for so long: nodes
            that are just starting are missing.
        first_node_s: nor for so long after its start while there is no node at all: a control plane
            answers before its machines have registered.
        replace_s: nothing is rejected for so long after a pool lost a machine, which may come back.
        refresh_s: positions and reasons of waiting leases are written no more often than this.
        status_writes: and no more of them at a time than this.
        avoid_s: a machine that could not be claimed is left alone for so long.
        retry_s: a claim whose request failed is tried again after so long.
    """

    workers: int = 8
    settle_s: float = 3.0
    first_node_s: float = 60.0
    replace_s: float = 60.0
    refresh_s: float = 2.0
    status_writes: int = 200
    avoid_s: float = 5.0
    retry_s: float = 1.0
