"""The scheduling framework: the extension points of plugins, and profiles of plugins.

A plugin is one module that exports one ``Plugin``: a name and what it does at each extension point.
Filters and scores have two forms, for one node and for many rows of the node table, which must agree
(property tests compare them); ``node_plugin`` derives both from one rule. ``Scope`` is what a verdict
depends on, so that the engine knows for how long it may keep it.
"""

from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Protocol, TypeVar

import msgspec

from grange.api.pod_requests import Resources
from grange.api.status import ApiError
from grange.base.bounded import BoundedDict
from grange.client.client import Client
from grange.placement.columns import Ids, Integers, Mask, NodeTable, Rows
from grange.placement.spread import DefaultConstraint
from grange.scheduler.clusterevents import Registration
from grange.scheduler.disruption_budgets import DisruptionBudgets
from grange.scheduler.domains import DomainRule
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.nominator import Nominator
from grange.scheduler.plugin_explanation import PluginExplanation, Refusals
from grange.scheduler.podindex import PodIndex
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

T = TypeVar("T")

_REGISTER_MAX = 50_000  # signatures; some 20 MB at worst
_NEXT_NUMBER = count()  # of a signature; profiles of one scheduler must not share any


class Code(Enum):
    """The kind of a plugin's status.

    ``UNRESOLVABLE`` is unschedulable, and removing pods would not help. ``SKIP`` of PreFilter means that
    the plugin narrows nothing; its filter is called all the same, unlike in kube-scheduler, and has to pass
    every node. ``PENDING``, of PreFilter, Reserve and Permit, rejects the pod until something happens that the
    plugin itself recognises: an event that its hint takes ends the wait without a backoff.
    """

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"
    PENDING = "Pending"


_OK = Code.SUCCESS  # looking a member up takes longer than comparing it
_REJECTIONS = frozenset({Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING})


class Status(msgspec.Struct, frozen=True, gc=False):
    """The result of a plugin.

    Attributes:
        reasons: each as it appears in the pod's condition.
        plugin: filled in by the framework.
        wait_s: with ``WAIT``, for how long at most; 0 for as long as the framework allows.
    """

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    wait_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it is a success."""
        return self.code is _OK

    @property
    def rejected(self) -> bool:
        """Whether the pod is rejected, as opposed to an error."""
        return self.code in _REJECTIONS


SUCCESS = Status(Code.SUCCESS)


class CycleState:
    """What plugins keep and share within one cycle.

    Attributes:
        score: the total of the chosen node, without what is equal for all candidates; -1 while
            nothing was compared.
    """

    __slots__ = ("_values", "score")

    def __init__(self) -> None:
        self._values: dict[type[object], object] = {}
        self.score = -1

    def write(self, value: object) -> None:
        """Keep a value by its type; one value a type."""
        self._values[type(value)] = value

    def read(self, kind: type[T]) -> T | None:
        """The value of that type, if any."""
        found = self._values.get(kind)
        return found if isinstance(found, kind) else None


class Scope(Enum):
    """What a verdict about a node depends on, besides the pod.

    ``NODE``: the node object. ``LOAD``: what it offers and the sum of its pods' requests, and
    nothing else (``NodeInfo.load``); nodes of one load share the verdict. ``NODES``: all node objects
    (scores only).
    """

    NODE = "Node"
    LOAD = "Load"
    NODES = "Nodes"


class Normalise(Enum):
    """How raw scores become 0 to 100 over the feasible nodes."""

    NONE = "None"
    BY_MAX = "ByMax"
    BY_MAX_REVERSED = "ByMaxReversed"


PreEnqueue = Callable[[PodInfo], Status]
"""Gates pods out of the active queue: whether the pod may enter it."""

QueueSort = Callable[[PodInfo, float], tuple[float, ...]]
"""Orders the active queue, by a pod and when it was queued: the smallest is scheduled first.

All its keys have one length.
"""


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """The result of a PreFilter plugin.

    Attributes:
        status: ``UNRESOLVABLE`` ends the cycle at once.
        node_names: the only candidate nodes; None for all.
    """

    status: Status = SUCCESS
    node_names: frozenset[str] | None = None


PASS = PreFilterResult()


class PreFilter(Protocol):
    """Checks the pod and the whole snapshot before any node."""

    def for_each(self, pod: PodInfo) -> bool:
        """Whether it must run for each such pod, not just for one of the signature.

        It must if it may reject the pod, restrict its nodes, or write to the state.
        """

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
    ) -> PreFilterResult:
        """Prepare, reject, or restrict the nodes."""


class Filter(Protocol):
    """Rejects nodes."""

    @property
    def scope(self) -> Scope:
        """What its verdict depends on, besides the pod."""

    def applies(self, pod: PodInfo) -> bool:
        """Whether it could reject any node; a function of the pod's signature."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Whether the pod may run on the node."""

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """The same for many rows."""

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """For rows that ``filter_rows`` rejects: each reason and its number of rows."""

    def explain(self, refusals: Refusals) -> PluginExplanation:
        """Why it rejects nodes, and what would help."""


class Score(Protocol):
    """Ranks the nodes that are left."""

    @property
    def scope(self) -> Scope:
        """What its scores depend on, besides the pod."""

    normalise: Normalise

    def applies(self, pod: PodInfo) -> bool:
        """Whether it could distinguish nodes; a function of the pod's signature."""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """The node's raw score, not negative; 0 to 100 unless it is normalised."""

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """The same for many."""


DomainsOf = Callable[[str], Ids]
"""The domains by label key of every row, or of groups of rows that share them; -1 for no such label."""


class DomainScore(Protocol):
    """A score that depends on other nodes, for pods of one class.

    Attributes:
        keys: the label keys that it reads.
        by_row: it distinguishes nodes of one domain.
    """

    keys: tuple[str, ...]
    by_row: bool

    def refresh(self) -> None:
        """Take in what changed."""

    def scores(self, domains: DomainsOf, feasible: Mask) -> Integers:
        """0 to 100 for feasible rows or groups, of which there is one at least; anything for the others."""


def check_rules(rules: Iterable[tuple[str, DomainRule]], table: NodeTable, row: int) -> Status:
    """Whether the rules, which are up to date, accept a node; of refusals the first."""
    for name, rule in rules:
        domain = int(table.labels(rule.key).ids[row])
        if not rule.opens(domain):
            hopeless = domain < 0 or not rule.resolvable
            code = Code.UNRESOLVABLE if hopeless else Code.UNSCHEDULABLE
            return Status(code, (rule.reason(missing=domain < 0),), name)
    return SUCCESS


Concerns = tuple[tuple[int, ...], ...]
"""Numbers of the pod index's terms, for each plugin about other nodes."""


class TopologyPlugin(Protocol):
    """Filters and scores nodes by the pods of their topology domains, from counts that are kept."""

    def concerns(self, pod: PodInfo, index: PodIndex) -> tuple[int, ...]:
        """The numbers of the index's terms that matter to the pod, by its signature and labels."""

    def rules(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> Sequence[DomainRule]:
        """The filter as rules about domains, in the order of their reasons."""

    def ranking(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> DomainScore | None:
        """The score; None when all nodes are equal."""

    def explain(self, refusals: Refusals, rules: Sequence[DomainRule]) -> PluginExplanation:
        """Why these rules reject nodes, and what would help."""


DeviceAllocator = Callable[[PodInfo, NodeInfo], tuple[int, ...]]
"""Of a pod that requests devices and a feasible node: which of its devices, by number."""


@dataclass(frozen=True, slots=True)
class Handle:
    """What a PostFilter plugin gets of one scheduling loop.

    Attributes:
        snapshot: current whenever the plugin is called.
        offset: returns a random number from 0 up to, not including, the argument.
    """

    profile: "Profile"
    snapshot: NodeInfoSnapshot
    nominator: Nominator
    budgets: DisruptionBudgets
    offset: Callable[[int], int]


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """The result of a PostFilter plugin for a pod without a node.

    Attributes:
        status: success if a node accepts the pod once the result is carried out.
        nominated: the node to nominate the pod to; empty removes a nomination, None keeps it.
        cleared: pods that lose their nominations.
        lent: UIDs of victims that are deleted because they use borrowed quota.
    """

    status: Status
    nominated: str | None = None
    victims: tuple[PodInfo, ...] = ()
    cleared: tuple[PodInfo, ...] = ()
    lent: frozenset[str] = frozenset()


PostFilter = Callable[[Handle], Callable[[CycleState, PodInfo], PostFilterResult]]
"""Makes, once for a scheduling loop, what is called for each pod without a feasible node.

That changes nothing: the cycle and the service carry the result out.
"""


class Reserve(Protocol):
    """Reserves resources of a node for a pod that is assumed on it."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """The pod is assumed on the node."""

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """The pod is no longer assumed there; must be idempotent."""


class Permit(Protocol):
    """Approves, delays or rejects a pod before it is bound."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Success binds, ``WAIT`` holds, anything else forgets the assumed pod.

        A plugin that returns ``WAIT`` finds the ``WaitingPods`` in the state and calls its ``allow``
        or ``reject`` with the pod's UID before the time is over.
        """


Bind = Callable[
    [Client, Sequence[tuple[PodInfo, str]]], Coroutine[None, None, Sequence[ApiError | None]]
]
"""Binds pods to nodes, each for itself; at most ``api.bindings.LIMIT``.

Returns for each, in order, None when the server has accepted it, or its error.
Cancellation: the results are unknown.
"""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin: what it does, by extension point.

    Attributes:
        name: as in kube-scheduler's configuration.
        topology: filters and scores by pods of other nodes; runs after all filters and scores.
        weight: of its score; 0 leaves its ranking out.
        scale: the largest score it gives.
        spread: default constraints, for pods without any.
        amounts: what of a request its filter compares with what nodes have left; None for nothing.
        device_allocator: chooses devices, before the pod is assumed; the last of a profile decides.
        signature: what of a pod its filter and score depend on; required if it has either.
        hints_differ: its events' hints read more of a pod than its signature.
        events: after which events pods that it rejected are worth another try.
        advice: what users may do about pods that it rejects before any node is looked at.
        configure: the plugin with arguments, from a document and its path in the configuration;
            None for one that takes none. Raises ``ConfigurationError``.
    """

    name: str
    pre_enqueue: PreEnqueue | None = None
    queue_sort: QueueSort | None = None
    pre_filter: PreFilter | None = None
    filter: Filter | None = None
    score: Score | None = None
    topology: TopologyPlugin | None = None
    post_filter: PostFilter | None = None
    weight: int = 1
    scale: int = 100
    spread: tuple[DefaultConstraint, ...] = ()
    amounts: Callable[[PodInfo], Resources] | None = None
    device_allocator: DeviceAllocator | None = None
    reserve: Reserve | None = None
    permit: Permit | None = None
    bind: Bind | None = None
    signature: Callable[[PodInfo], Hashable] | None = None
    hints_differ: bool = False
    events: tuple[Registration, ...] = ()
    advice: str = ""
    configure: "Callable[[object, str], Plugin] | None" = None


class Profile:
    """An ordered set of plugins, by extension point.

    Args:
        plugins: in the order in which they run; exactly one sorts the queue, one binds.
        percentage: of the nodes to evaluate, 1 to 100; 0 for fewer the more nodes there are.

    Raises:
        ValueError: two plugins have one name, none or several sort the queue or bind, or a filter
            or score has no signature.
    """

    def __init__(self, plugins: Sequence[Plugin], *, percentage: int = 100) -> None:
        self.percentage = percentage
        self.plugins = {plugin.name: plugin for plugin in plugins}
        if len(self.plugins) != len(plugins):
            raise ValueError("two plugins have the same name")
        self.pre_enqueue = [(item.name, item.pre_enqueue) for item in plugins if item.pre_enqueue]
        self.pre_filter = [(item.name, item.pre_filter) for item in plugins if item.pre_filter]
        self.filters = [(item.name, item.filter) for item in plugins if item.filter]
        self.scores = [(item.name, item.score, item.weight) for item in plugins if item.score]
        self.topology = [
            (item.name, item.topology, item.weight) for item in plugins if item.topology
        ]
        self.ranks = bool(self.scores) or any(weight for _, _, weight in self.topology)
        self.spread = tuple(one for item in plugins for one in item.spread)
        self.amounts = next((item.amounts for item in plugins if item.amounts), None)
        self.device_allocator = next(
            (item.device_allocator for item in reversed(plugins) if item.device_allocator), None
        )
        self.post_filter = [(item.name, item.post_filter) for item in plugins if item.post_filter]
        self.reserve = [(item.name, item.reserve) for item in plugins if item.reserve]
        self.permit = [(item.name, item.permit) for item in plugins if item.permit]
        self.has_reserve_or_permit = bool(self.reserve or self.permit)
        self.events = {item.name: item.events for item in plugins}
        # Plugins whose hints are functions of the signature, so that one verdict serves a class.
        self.signed = frozenset(
            item.name for item in plugins if item.signature and not item.hints_differ
        )
        sorts = [item.queue_sort for item in plugins if item.queue_sort]
        binds = [item.bind for item in plugins if item.bind]
        if len(sorts) != 1 or len(binds) != 1:
            raise ValueError("a profile needs exactly one plugin that sorts and one that binds")
        self.queue_sort = sorts[0]
        self.bind = binds[0]
        self._fragments = [item.signature for item in plugins if item.signature]
        self._numbers: BoundedDict[Hashable, int] = BoundedDict(_REGISTER_MAX)
        for item in plugins:
            if (item.filter or item.score or item.topology) and item.signature is None:
                raise ValueError(f"plugin {item.name} filters or scores and has no signature")
            if item.filter and item.filter.scope is Scope.NODES:
                raise ValueError(
                    f"plugin {item.name} filters by all node objects, which scores may do"
                )

    # A profile alone is a set of profiles, whatever the scheduler name.

    def of(self, pod: PodInfo) -> "Profile":
        """The profile of a pod."""
        return self

    def named(self, scheduler_name: str) -> "Profile | None":
        """The profile of that name."""
        return self

    def each(self) -> "tuple[Profile, ...]":
        """All profiles there are."""
        return (self,)

    def allowed_rows(self, pod: PodInfo, table: NodeTable) -> Mask:
        """By row, whether the filters which look at node objects alone let the pod pass."""
        mask: Mask = table.valid[table.all].copy()
        for _, plugin in self.filters:
            if plugin.scope is Scope.NODE and plugin.applies(pod):
                mask &= plugin.filter_rows(pod, table, table.all)
        return mask

    def concerns(self, pod: PodInfo, index: PodIndex) -> Concerns:
        """Of each plugin about other nodes, the terms of placed pods that matter to the pod."""
        return tuple([item.concerns(pod, index) for _, item, _ in self.topology])

    def rules(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: Concerns
    ) -> list[tuple[str, DomainRule]]:
        """The rules about other nodes, by plugin, in the order of their reasons."""
        return [
            (name, rule)
            for (name, item, _), mine in zip(self.topology, concerns, strict=True)
            for rule in item.rules(pod, snapshot, mine)
        ]

    def rankings(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: Concerns
    ) -> list[tuple[DomainScore, int]]:
        """What ranks nodes by other nodes, with weights."""
        return [
            (ranking, weight)
            for (_, item, weight), mine in zip(self.topology, concerns, strict=True)
            if weight and (ranking := item.ranking(pod, snapshot, mine)) is not None
        ]

    def sign(self, pod: PodInfo) -> int:
        """Number the pod's signature: pods with equal numbers get equal decisions in any state.

        The number is kept on the pod. Equal signatures have equal numbers until the register is
        full and emptied; after that they may get another number.
        """
        if pod.signature is None:
            fragments = tuple(fragment(pod) for fragment in self._fragments)
            number = self._numbers.get(fragments)
            if number is None:
                number = self._numbers[fragments] = next(_NEXT_NUMBER)
            pod.signature = number
        return pod.signature


class ProfileSet:
    """Profiles by scheduler name.

    Args:
        by_name: at least one; names may share a profile. All sort the queue and bind alike, since they
            share both.
    """

    def __init__(self, by_name: Mapping[str, Profile]) -> None:
        self._by_name = dict(by_name)
        self._each = tuple(dict.fromkeys(self._by_name.values()))
        self.bind: Bind = self._each[0].bind

    @property
    def names(self) -> frozenset[str]:
        """The scheduler names."""
        return frozenset(self._by_name)

    def of(self, pod: PodInfo) -> Profile:
        """The profile that the pod asks for.

        Raises:
            KeyError: no profile has that name; such pods are not ours.
        """
        return self._by_name[pod.pod.spec.scheduler_name]

    def named(self, scheduler_name: str) -> Profile | None:
        """The profile of that name, if there is one."""
        return self._by_name.get(scheduler_name)

    def each(self) -> Sequence[Profile]:
        """All of them."""
        return self._each

    def sign(self, pod: PodInfo) -> int:
        """Number the pod's signature."""
        return self.of(pod).sign(pod)


Profiles = Profile | ProfileSet
"""The profiles of one scheduler; one profile alone is such a set."""
