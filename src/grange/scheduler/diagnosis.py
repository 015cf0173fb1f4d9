"""What comes out of a scheduling cycle's choice: a node, or the reasons why there is none."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from grange.placement.columns import Integers, NodeTable
from grange.scheduler.framework import Code, CycleState, Filter, Profile, Status
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

NO_NODES = "no nodes available to schedule pods"
_REASONS_MAX = 256  # every node may have another one, and a condition is stored


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """No node is feasible.

    Attributes:
        num_nodes: how many there are.
        counts: reasons and how many nodes gave each, sorted as text.
        plugins: which rejected the pod; their events requeue it.
        pre_filter: the reason why no node was evaluated; empty otherwise.
        error: a plugin failed rather than refused.
        pending: the plugins recognise what they wait for, so that no backoff is needed after it.
        waits: what the pod waits for before any node is looked at; then this is the whole message.
        nominated: the node that the pod is nominated to and waits for; or empty.
        post_filter: why preemption does not help; empty where no plugin ran.
        event_after_s: the event is written only if this is still so after so many seconds.
    """

    num_nodes: int
    counts: tuple[tuple[str, int], ...] = ()
    plugins: frozenset[str] = frozenset()
    pre_filter: str = ""
    error: bool = False
    pending: bool = False
    waits: str = ""
    nominated: str = ""
    post_filter: str = field(default="", compare=False)
    event_after_s: float = field(default=0.0, compare=False)

    @property
    def message(self) -> str:
        """The message of the pod's condition, in the form of kube-scheduler's FitError.

        For example ``0/3 nodes are available: 3 Insufficient cpu. preemption: not eligible due to
        preemptionPolicy=Never.``
        """
        parts = [self._diagnosis]
        if self.nominated:
            parts = [f"{parts[0].removesuffix('.')}.", f"Nominated to {self.nominated}."]
        if self.post_filter:
            parts.append(f"preemption: {self.post_filter}")
        return " ".join(parts)

    @property
    def _diagnosis(self) -> str:
        if self.waits:
            return self.waits
        if not self.num_nodes:
            return NO_NODES
        reasons = [self.pre_filter] if self.pre_filter else []
        counts = sorted(self.counts, key=lambda item: (-item[1], item[0]))
        reasons += sorted(f"{count} {reason}" for reason, count in counts[:_REASONS_MAX])
        if len(counts) > _REASONS_MAX:
            reasons.append(f"{sum(count for _, count in counts[_REASONS_MAX:])} for other reasons")
        return f"0/{self.num_nodes} nodes are available: {', '.join(reasons)}."


class Tally:
    """Collects the refusals of nodes, in addition to those of another tally."""

    def __init__(self, start: "Tally | None" = None) -> None:
        self._reasons: Counter[str] = Counter(start._reasons if start else ())
        self._plugins: dict[str, None] = dict(start._plugins if start else ())

    def add(self, plugin: str, reasons: Iterable[tuple[str, int]]) -> None:
        """A plugin refused nodes for these reasons."""
        self._plugins[plugin] = None
        for reason, count in reasons:
            self._reasons[reason] += count

    def add_refusals(
        self,
        filters: Iterable[tuple[str, Filter]],
        pod: PodInfo,
        table: NodeTable,
        rows: Integers,
    ) -> Integers:
        """Ask filters that apply to the pod about rows, each about those that are left; return the rest."""
        for name, plugin in filters:
            passed = plugin.filter_rows(pod, table, rows)
            refused = rows[~passed]
            if len(refused):
                self.add(name, plugin.count_reasons(pod, table, refused))
                rows = rows[passed]
        return rows

    def diagnosis(self, num_nodes: int) -> Diagnosis:
        """All of them together."""
        counts = tuple(sorted(self._reasons.items()))
        return Diagnosis(num_nodes, counts, frozenset(self._plugins))


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The only nodes to look at (None for all), and the plugins that narrowed them down."""

    node_names: frozenset[str] | None = None
    plugins: tuple[str, ...] = ()


EVERY_NODE = Narrowed()


def pre_filter(
    profile: Profile, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
) -> Narrowed | Diagnosis:
    """Ask the PreFilter plugins in order.

    An unresolvable refusal or an error ends it; a plain refusal is remembered while the others are
    still run, so that they write to the state. Without any node left in common
    between those that name nodes, nothing can be done either.
    """
    total = snapshot.num_nodes
    if not total:
        return Diagnosis(0, plugins=frozenset(name for name, _ in profile.filters))
    refused: Diagnosis | None = None
    names: frozenset[str] | None = None
    who: list[str] = []
    for name, plugin in profile.pre_filter:
        result = plugin.pre_filter(state, pod, snapshot)
        status = result.status
        if not (status.ok or status.code is Code.SKIP):
            found = refusal(total, name, status)
            if status.code is not Code.UNSCHEDULABLE:
                return found
            refused = refused or found
        if result.node_names is not None:
            who.append(name)
            names = result.node_names if names is None else names & result.node_names
    if refused is not None:
        return refused
    if names is None:
        return EVERY_NODE
    if not names:
        reason = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(who))}] simultaneously"
        return Diagnosis(total, plugins=frozenset(who), pre_filter=reason)
    return Narrowed(names, tuple(who))


def refusal(total: int, plugin: str, status: Status) -> Diagnosis:
    """The diagnosis that follows from a plugin's status other than success; one that rejects no pod is an error."""
    reason = ", ".join(status.reasons) or f"{plugin} rejected the pod"
    return Diagnosis(
        total,
        plugins=frozenset({plugin}),
        pre_filter=reason,
        error=not status.rejected,
        pending=status.code is Code.PENDING,
    )
