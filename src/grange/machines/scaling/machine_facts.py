"""What a machine is: as it became, or as it was ordered while that is not known."""

from grange.api.kinds.machine import Machine
from grange.api.machine_phases import MachinePhase

OFF = frozenset({MachinePhase.STOPPED, MachinePhase.STOPPING})
"""Phases of machines that are kept switched off, or are being switched off for that."""


def type_of(machine: Machine) -> str:
    """Its instance type."""
    return machine.status.instance_type or machine.spec.instance_type


def zone_of(machine: Machine) -> str:
    """Its zone; empty where none was asked for and none is known."""
    return machine.status.zone or machine.spec.placement.zone


def is_spot(machine: Machine) -> bool:
    """Whether it can be taken back at any time."""
    return machine.status.spot if machine.status.instance_type else machine.spec.spot
