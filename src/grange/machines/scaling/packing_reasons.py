"""Why a pod gets no machine, with the cheapest change that would help."""

import numpy as np

from grange.api import quantity
from grange.machines.scaling.packing_bins import PackingBins
from grange.machines.scaling.packing_options import MachineOption
from grange.machines.scaling.packing_pods import PackedPod, PodRules
from grange.machines.scaling.packing_units import PackingUnit
from grange.placement.columns import Integers, Mask

_NO_ROWS: Integers = np.zeros(0, np.int64)


def why_unplaced(
    bins: PackingBins, unit: PackingUnit, pod: PackedPod
) -> tuple[str, tuple[str, ...]]:
    """Why a pod of a unit was not placed, and the names of the pools that this is about.

    These are the pools that could have a machine for it, else those that it may use; empty for all.
    """
    rules = pod.steps[-1]
    reason, rows = _why(bins, pod, rules)
    if unit.needed > 1:
        reason = f"{unit.needed} members of its PodGroup do not fit together; {reason}"
    options = bins.options
    return reason, tuple(options.pools[at].name for at in np.unique(options.pool_of[rows]).tolist())


def _why(bins: PackingBins, pod: PackedPod, rules: PodRules) -> tuple[str, Integers]:
    """The reason, and the options that it is about."""
    options = bins.options
    if not options.rows:
        return "no pool of shared machines offers any instance type", _NO_ROWS
    need = bins.need(pod.request)
    wanted: dict[str, Mask] = {
        "selector": options.matching(rules),
        "taints": options.tolerated(rules),
        "room": np.asarray((options.room >= need).all(axis=1), np.bool_),
        "capacity": options.available,
    }
    fits = np.logical_and.reduce([*wanted.values()])
    if fits.any():
        rows = np.flatnonzero(fits)
        return _why_not_now(bins, rules, rows), rows
    selected = np.flatnonzero(wanted["selector"])
    # What would fit if one demand were dropped; the cheapest of these is what to change.
    best: tuple[int, str] | None = None
    for name in wanted:
        others = np.logical_and.reduce([mask for key, mask in wanted.items() if key != name])
        rows = np.flatnonzero(others)
        if len(rows):
            row = min((int(each) for each in rows), key=lambda at: options.rows[at].offering.price)
            if (
                best is None
                or options.rows[row].offering.price < options.rows[best[0]].offering.price
            ):
                best = row, name
    if best is None:
        reason = "no instance type of any pool suits, whichever one of its demands is dropped"
    else:
        reason = _change(bins, pod, rules, options.rows[best[0]], best[1], need, best[0])
    return reason, selected


def _why_not_now(bins: PackingBins, rules: PodRules, rows: Integers) -> str:
    """What keeps a pod from machines that suit: limits, or other pods."""
    options, refusals = bins.options, []
    for at, pool in enumerate(options.pools):
        own = rows[options.pool_of[rows] == at]
        if len(own):
            refusal = bins.allowances[at].refusal(own)
            if not refusal:
                keys = ", ".join(bins.topology.rules_of(rules).keys) or "kubernetes.io/hostname"
                return f"its rules about other pods allow no domain ({keys}) that can be had"
            refusals.append(f"pool {pool.name}: {refusal}")
    return "; ".join(refusals)


def _change(
    bins: PackingBins,
    pod: PackedPod,
    rules: PodRules,
    option: MachineOption,
    dropped: str,
    need: Integers,
    row: int,
) -> str:
    kind, pool = option.kind.name, option.pool.name
    where = f"pool {pool}, type {kind}"
    if dropped == "capacity":
        return f"{where}: {option.refusal}"
    if dropped == "taints":
        keys = ", ".join(
            f"{taint.key}:{taint.effect}" for taint in option.pool.pool.spec.template.taints
        )
        return f"{where} would fit if the pod tolerated {keys}"
    if dropped == "selector":
        named = ", ".join(f"{key}={value}" for key, value in rules.nodes.selector)
        demand = f"its node selector ({named})" if named else "its node affinity"
        return f"{where} would fit but for {demand}"
    names, room = bins.options.names, bins.options.room
    # The type that comes nearest: the largest in what is lacking on the cheapest.
    lacking = [at for at, name in enumerate(names) if need[at] > room[row][at]]
    usable = bins.options.matching(rules) & bins.options.tolerated(rules) & bins.options.available
    rows = np.flatnonzero(usable)
    best = max(rows.tolist(), key=lambda at: ([int(room[at][k]) for k in lacking], -at))
    shown = ", ".join(
        f"{names[at]} {_shown(names[at], int(need[at]))} where {_shown(names[at], int(room[best][at]))} can be had"
        for at in lacking
        if need[at] > room[best][at]
    )
    most = bins.options.rows[best]
    return f"no type holds it: {shown or 'its requests'} (largest: pool {most.pool.name}, type {most.kind.name})"


def _shown(name: str, amount: int) -> str:
    if name == "cpu":
        return quantity.format_milli(amount)
    return (
        quantity.format_binary(amount) if name in ("memory", "ephemeral-storage") else f"{amount}"
    )
