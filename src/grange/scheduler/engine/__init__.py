"""Chooses a node for a pod as the reference does, without looking at every node for every pod.

Owns: what every node is worth to pods that are alike (``equivalence_class``, ``topology_class``),
    the reference that it is held to (``reference``), nominated pods.
Never: cluster state; it decides on a snapshot that others bring up to date.
Start reading at: ``engine``; other modules import from this package.
"""

from grange.scheduler.engine.engine import Engine
from grange.scheduler.engine.equivalence_class import EngineStatistics
from grange.scheduler.engine.reference import EVERY_NODE, Rotation

__all__ = ["EVERY_NODE", "Engine", "EngineStatistics", "Rotation"]
