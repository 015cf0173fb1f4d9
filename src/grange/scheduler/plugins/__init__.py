"""The plugins, in the order in which they are asked: one module and one line a plugin."""

from grange.scheduler.framework import Plugin
from grange.scheduler.plugins import (
    balancedallocation,
    defaultbinder,
    nodeaffinity,
    nodename,
    nodeports,
    noderesourcesfit,
    nodeunschedulable,
    prioritysort,
    schedulinggates,
    tainttoleration,
    unsupported,
)

DEFAULT: tuple[Plugin, ...] = (
    schedulinggates.PLUGIN,
    prioritysort.PLUGIN,
    unsupported.PLUGIN,
    nodeunschedulable.PLUGIN,
    nodename.PLUGIN,
    tainttoleration.PLUGIN,
    nodeaffinity.PLUGIN,
    nodeports.PLUGIN,
    noderesourcesfit.PLUGIN,
    balancedallocation.PLUGIN,
    defaultbinder.PLUGIN,
)
