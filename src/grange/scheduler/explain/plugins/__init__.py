"""Plugins' demands in words: one module and one line a plugin. Others speak for themselves."""

from collections.abc import Mapping

from grange.scheduler.explain.explanation import Explain
from grange.scheduler.explain.plugins import (
    node_affinity,
    node_ports,
    node_unschedulable,
    pod_affinity,
    resources_fit,
    taint_toleration,
    topology_spread,
)

TABLE: Mapping[str, Explain] = {
    "InterPodAffinity": pod_affinity.Company,
    "NodeAffinity": node_affinity.NodeLabels,
    "NodePorts": node_ports.HostPorts,
    "NodeResourcesFit": resources_fit.Amount,
    "NodeUnschedulable": node_unschedulable.Cordon,
    "PodTopologySpread": topology_spread.Evenness,
    "TaintToleration": taint_toleration.Tainted,
}
