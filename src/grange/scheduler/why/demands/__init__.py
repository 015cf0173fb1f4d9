"""Plugins' demands in words: one module and one line a plugin. Others speak for themselves."""

from collections.abc import Mapping

from grange.scheduler.why.demand import Explain
from grange.scheduler.why.demands import (
    company,
    cordon,
    hostports,
    nodelabels,
    resources,
    spread,
    taint,
)

TABLE: Mapping[str, Explain] = {
    "InterPodAffinity": company.Company,
    "NodeAffinity": nodelabels.NodeLabels,
    "NodePorts": hostports.HostPorts,
    "NodeResourcesFit": resources.Amount,
    "NodeUnschedulable": cordon.Cordon,
    "PodTopologySpread": spread.Evenness,
    "TaintToleration": taint.Tainted,
}
