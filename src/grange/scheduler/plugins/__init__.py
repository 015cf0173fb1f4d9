"""The plugins, in the order in which they are asked: one module and one line a plugin."""

from grange.scheduler.framework import Plugin
from grange.scheduler.plugins import (
    balancedallocation,
    defaultbinder,
    imagelocality,
    interpodaffinity,
    nodeaffinity,
    nodename,
    nodeports,
    noderesourcesfit,
    nodeunschedulable,
    podtopologyspread,
    prioritysort,
    schedulinggates,
    tainttoleration,
)

DEFAULT: tuple[Plugin, ...] = (
    schedulinggates.PLUGIN,
    prioritysort.PLUGIN,
    nodeunschedulable.PLUGIN,
    nodename.PLUGIN,
    tainttoleration.PLUGIN,
    nodeaffinity.PLUGIN,
    nodeports.PLUGIN,
    noderesourcesfit.PLUGIN,
    podtopologyspread.PLUGIN,
    interpodaffinity.PLUGIN,
    balancedallocation.PLUGIN,
    imagelocality.PLUGIN,
    defaultbinder.PLUGIN,
)
