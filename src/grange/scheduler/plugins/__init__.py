"""The plugins, in the order in which they run: one module and one line for each."""

from grange.scheduler.framework import Plugin
from grange.scheduler.plugins import (
    balancedallocation,
    defaultbinder,
    defaultpreemption,
    dynamicresources,
    gpushare,
    imagelocality,
    imageruntime,
    interpodaffinity,
    nodeaffinity,
    nodedeclaredfeatures,
    nodename,
    nodeports,
    noderesourcesfit,
    nodeunschedulable,
    packingpolicies,
    podtopologyspread,
    prioritysort,
    schedulinggates,
    tainttoleration,
    volumebinding,
    volumerestrictions,
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
    gpushare.PLUGIN,
    volumerestrictions.PLUGIN,
    volumebinding.PLUGIN,
    podtopologyspread.PLUGIN,
    interpodaffinity.PLUGIN,
    nodedeclaredfeatures.PLUGIN,
    dynamicresources.PLUGIN,
    defaultpreemption.PLUGIN,
    balancedallocation.PLUGIN,
    imagelocality.PLUGIN,
    imageruntime.PLUGIN,
    defaultbinder.PLUGIN,
)

# Besides the default ones, plugins that a profile may enable.
AVAILABLE: tuple[Plugin, ...] = (*DEFAULT, *packingpolicies.PLUGINS)
