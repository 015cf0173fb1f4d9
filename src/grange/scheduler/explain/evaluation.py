"""All plugins on all nodes for one pod: unlike a decision, it continues after the first refusal.

It uses the vectorised forms on the scheduler's own snapshot, between two decisions, and changes
nothing that a decision depends on.
"""

import numpy as np

from grange.placement import kernels, resource_fit
from grange.placement.columns import Integers, Mask
from grange.scheduler.diagnosis import Diagnosis, Tally
from grange.scheduler.dry_run import DryRun
from grange.scheduler.framework import CycleState, Normalise, Profile, Scope
from grange.scheduler.nominator import Nominated
from grange.scheduler.plugin_explanation import PluginExplanation, Refusals, Remedy
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

_NOMINATIONS = "nominations"


class Evaluation:
    """The verdicts of a profile's plugins on all nodes.

    Args:
        state: what PreFilter left for the pod.
        nominated: the nominations that matter to the pod: nodes that accept it only without them
            refuse it.

    Attributes:
        valid, feasible: by row, whether there is a node, and whether it accepts the pod.
        fixed: by row, whether the node object alone rules it out.
        explanations: of the plugins that refuse any node, by name.
        diagnosis: what a decision would return if no node were feasible.
    """

    def __init__(
        self,
        profile: Profile,
        pod: PodInfo,
        snapshot: NodeInfoSnapshot,
        state: CycleState | None = None,
        nominated: Nominated | None = None,
    ) -> None:
        self.pod, self.snapshot, self.profile = pod, snapshot, profile
        self.state, self.nominated = state or CycleState(), nominated
        table = snapshot.table
        self.valid: Mask = table.valid[table.all].copy()
        self.feasible: Mask = self.valid.copy()
        self.fixed: Mask = ~self.valid
        self.explanations: dict[str, PluginExplanation] = {}
        self._tally = Tally()
        self._left: Integers = np.flatnonzero(self.valid)
        self._evaluate_filters()
        self._evaluate_rules()
        if nominated is not None:
            self._evaluate_nominations(nominated)
        self.diagnosis: Diagnosis = self._tally.diagnosis(snapshot.num_nodes)

    def _evaluate_filters(self) -> None:
        table, pod = self.snapshot.table, self.pod
        for name, plugin in self.profile.filters:
            if not plugin.applies(pod):
                continue
            refused = self.valid & ~plugin.filter_rows(pod, table, table.all)
            if not refused.any():
                continue
            first = self._left[refused[self._left]]
            if len(first):
                self._tally.add(name, plugin.count_reasons(pod, table, first))
            self._left = self._left[~refused[self._left]]
            if plugin.scope is Scope.NODE:
                self.fixed |= refused
            self._refuse(name, plugin.explain(Refusals(pod, self.snapshot, refused)), refused)

    def _evaluate_rules(self) -> None:
        table, pod, snapshot = self.snapshot.table, self.pod, self.snapshot
        for name, plugin, _ in self.profile.topology:
            rules = plugin.rules(pod, snapshot, plugin.concerns(pod, snapshot.index))
            refused: Mask = np.zeros(len(self.valid), np.bool_)
            for rule in rules:
                rule.refresh()
                ids = table.domains(rule.key)
                passed = rule.verdicts()[ids]
                refused |= ~passed
                first = ids[self._left][~passed[self._left]]
                if len(first):
                    self._tally.add(name, rule.count_reasons(first))
                self._left = self._left[passed[self._left]]
            refused &= self.valid
            if refused.any():
                refusals = Refusals(pod, snapshot, refused)
                self._refuse(name, plugin.explain(refusals, rules), refused)

    def _evaluate_nominations(self, nominated: Nominated) -> None:
        table = self.snapshot.table
        dry_run = self.dry_run()
        refused: Mask = np.zeros(len(self.valid), np.bool_)
        for name in nominated.level:
            row, pods = table.rows.get(name), nominated.on(name)
            if row is None or not pods or not self.feasible[row]:
                continue
            with dry_run.on(self.snapshot.node_info_map[name]) as what_if:
                status = what_if.status(pods)
            if not status.ok:
                refused[row] = True
                self._tally.add(status.plugin, [(reason, 1) for reason in status.reasons])
        if refused.any():
            refusals = Refusals(self.pod, self.snapshot, refused)
            self._refuse(_NOMINATIONS, _NominationExplanation(refusals, nominated), refused)

    def _refuse(self, name: str, explanation: PluginExplanation, refused: Mask) -> None:
        self.feasible &= ~refused
        self.explanations[name] = explanation

    def dry_run(self) -> DryRun:
        """A trial of the pod."""
        return DryRun(self.profile, self.state, self.pod, self.snapshot)

    def lacks(self) -> Integers:
        """By row, the number of obstacles."""
        total: Integers = np.zeros(len(self.valid), np.int64)
        for item in self.explanations.values():
            total += item.lacks
        return total

    def nearest(self, limit: int) -> list[int]:
        """The refused rows with the fewest obstacles, the nearest first."""
        lacks = self.lacks()
        rows = np.flatnonzero(self.valid & ~self.feasible)
        if len(rows) > limit:
            # Only those that can be among the first are sorted by severity.
            bound = np.partition(lacks[rows], limit - 1)[limit - 1]
            rows = rows[lacks[rows] <= bound]
        severity = np.zeros(len(rows), np.float64)
        for item in self.explanations.values():
            severity += item.severity[rows]
        order = np.lexsort((-self.snapshot.ties[rows], severity, lacks[rows]))
        nearest: list[int] = rows[order[:limit]].tolist()
        return nearest

    def missing(self, row: int) -> list[str]:
        """The obstacles on a node."""
        return [
            obstacle
            for item in self.explanations.values()
            if item.lacks[row]
            for obstacle in item.missing(row)
        ]

    def scores(self) -> dict[str, Integers]:
        """The weighted score of every feasible row, by plugin; anything for other rows."""
        table, pod, found = self.snapshot.table, self.pod, {}
        for name, plugin, weight in self.profile.scores:
            if not plugin.applies(pod):
                continue
            raw = plugin.score_rows(pod, table, table.all)
            if plugin.normalise is not Normalise.NONE:
                most = kernels.most(raw, self.feasible)
                reverse = plugin.normalise is Normalise.BY_MAX_REVERSED
                raw = resource_fit.normalised(raw, most, reverse=reverse)
            found[name] = weight * raw
        for name, item, weight in self.profile.topology:
            ranking = item.ranking(pod, self.snapshot, item.concerns(pod, self.snapshot.index))
            if ranking is not None:
                ranking.refresh()
                found[name] = weight * ranking.scores(table.domains, self.feasible)
        return found


class _NominationExplanation:
    """Explains nodes that refuse the pod only together with the pods nominated to them."""

    def __init__(self, refusals: Refusals, nominated: Nominated) -> None:
        self._refusals, self._nominated = refusals, nominated
        self.lacks, self.severity = refusals.one_each(), refusals.no_severity()

    def missing(self, row: int) -> list[str]:
        """The nominated pods."""
        nominated = self._nominated.on(self._refusals.node(row).name)
        return [f"room is kept for {', '.join(str(info.pod.key) for info in nominated)}"]

    def changes(self, rows: Integers) -> list[Remedy]:
        """Nothing is to be changed: the nominated pods come first."""
        return []
