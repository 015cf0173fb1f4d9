"""The scheduler's configuration file, in the form of KubeSchedulerConfiguration v1.

What the form has and this scheduler has no use for (leader election, client connections, profiling,
parallelism) is read and has no effect, so that an existing file works; what would change decisions
and is not there (extenders) is refused. Everything wrong is refused with the path of the field.

A profile starts from the default plugins. ``plugins.multiPoint`` and the lists of single extension
points take some out (``disabled``, ``*`` for all) and put others in or change their weight
(``enabled``). Plugins are asked in the order of the default, further ones in the order in which they
are listed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, TypeAlias

from grange.api import codec, names
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.scheduler import plugins
from grange.scheduler.config import SchedulerConfig
from grange.scheduler.domains import DomainRule
from grange.scheduler.engine import EVERY_NODE
from grange.scheduler.framework import Plugin, Profile, ProfileSet, TopologyPlugin
from grange.scheduler.plugin_args import (
    API_VERSION,
    ConfigSection,
    ConfigurationError,
    read,
    refusal,
    within,
)
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queued_pods import QueueSettings
from grange.scheduler.snapshot import NodeInfoSnapshot

KIND = "KubeSchedulerConfiguration"
DEFAULT_NAME = "default-scheduler"
WEIGHT_MAX = 10_000
_ALL = "*"
# Kubernetes' plugins for what is not here; a file may take them out all the same.
_ELSEWHERE = frozenset(
    {
        "AzureDiskLimits",
        "EBSLimits",
        "GCEPDLimits",
        "NodeVolumeLimits",
        "VolumeZone",
    }
)
_Known: TypeAlias = Mapping[str, Plugin]
_TOTAL_MAX = 2**31 - 1  # what a total score may come to
_BACKOFF_MAX_S = 86_400.0


class Enabled(ConfigSection, frozen=True, kw_only=True):
    """A plugin to put in; without a weight its score counts once, as for Kubernetes."""

    name: str
    weight: int = 0

    def __post_init__(self) -> None:
        within("weight", self.weight, 0, WEIGHT_MAX)


class Disabled(ConfigSection, frozen=True, kw_only=True):
    """A plugin to take out; ``*`` for all."""

    name: str
    weight: int = 0


class PluginSet(ConfigSection, frozen=True, kw_only=True):
    """Changes at one extension point."""

    enabled: tuple[Enabled, ...] = ()
    disabled: tuple[Disabled, ...] = ()


class Plugins(ConfigSection, frozen=True, kw_only=True):
    """Changes by extension point."""

    multi_point: PluginSet = PluginSet()
    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()


class PluginConfig(ConfigSection, frozen=True, kw_only=True):
    """The arguments of one plugin."""

    name: str
    args: Document = {}  # noqa: RUF012  msgspec copies it


class ProfileSpec(ConfigSection, frozen=True, kw_only=True):
    """One profile."""

    scheduler_name: str = DEFAULT_NAME
    percentage_of_nodes_to_score: int | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()

    def __post_init__(self) -> None:
        if fault := names.check_dns_subdomain(self.scheduler_name):
            raise ValueError(refusal("schedulerName", fault))
        if self.percentage_of_nodes_to_score is not None:
            within("percentageOfNodesToScore", self.percentage_of_nodes_to_score, 0, 100)


class Configuration(ConfigSection, frozen=True, kw_only=True):
    """The whole file."""

    api_version: str
    kind: str
    parallelism: int = 16
    leader_election: Document | None = None
    client_connection: Document | None = None
    enable_profiling: bool = False
    enable_contention_profiling: bool = False
    delay_cache_until_active: bool = False
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: float = 1
    pod_max_backoff_seconds: float = 10
    profiles: tuple[ProfileSpec, ...] = (ProfileSpec(),)
    extenders: tuple[Document, ...] = ()

    def __post_init__(self) -> None:
        if self.api_version != API_VERSION:
            raise ValueError(refusal("apiVersion", f"must be {API_VERSION}"))
        if self.kind != KIND:
            raise ValueError(refusal("kind", f"must be {KIND}"))
        if self.percentage_of_nodes_to_score is not None:
            within("percentageOfNodesToScore", self.percentage_of_nodes_to_score, 0, 100)
        for field, value in (
            ("podInitialBackoffSeconds", self.pod_initial_backoff_seconds),
            ("podMaxBackoffSeconds", self.pod_max_backoff_seconds),
        ):
            if not (isfinite(value) and 0 < value <= _BACKOFF_MAX_S):
                message = f"must be more than 0 and at most {_BACKOFF_MAX_S:.0f}"
                raise ValueError(refusal(field, message))
        if self.pod_max_backoff_seconds < self.pod_initial_backoff_seconds:
            message = "must not be less than podInitialBackoffSeconds"
            raise ValueError(refusal("podMaxBackoffSeconds", message))
        if self.extenders:
            raise ValueError(refusal("extenders", "there are none here; write a plugin instead"))
        if not self.profiles:
            raise ValueError(refusal("profiles", "needs at least one profile"))
        seen = [profile.scheduler_name for profile in self.profiles]
        for at, name in enumerate(seen):
            if name in seen[:at]:
                text = f"another profile is called {name} already"
                raise ValueError(refusal(f"profiles[{at}].schedulerName", text))


@dataclass(frozen=True, slots=True)
class Configured:
    """The content of a file."""

    config: SchedulerConfig
    profiles: ProfileSet


def load(text: str) -> Configured:
    """Read a configuration file.

    Raises:
        ConfigurationError: it is no such file, or anything in it is wrong.
    """
    try:
        documents = codec.load_yaml_documents(text)
    except ApiError as error:
        raise ConfigurationError(error.message) from error
    if len(documents) != 1:
        raise ConfigurationError(f"needs exactly one document, there are {len(documents)}")
    return configure(documents[0])


def configure(document: Document) -> Configured:
    """The same from a decoded document; a null member is as one that is not there.

    Raises:
        ConfigurationError: anything in it is wrong.
    """
    given = read(_without_nulls(document), Configuration, "")
    profiles = {
        spec.scheduler_name: _profile(spec, f"profiles[{at}]", given)
        for at, spec in enumerate(given.profiles)
    }
    for does, alike in (("sort the queue", "queue_sort"), ("bind", "bind")):
        if len({getattr(profile, alike) for profile in profiles.values()}) > 1:
            raise ConfigurationError(f"profiles: all must {does} by the same plugin")
    made = ProfileSet(profiles)
    queue = QueueSettings(
        backoff_initial_s=given.pod_initial_backoff_seconds,
        backoff_max_s=given.pod_max_backoff_seconds,
    )
    return Configured(SchedulerConfig(scheduler_names=made.names, queue=queue), made)


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _profile(spec: ProfileSpec, path: str, given: Configuration) -> Profile:
    made = _chosen(spec.plugins, f"{path}.plugins", _configured(spec, path))
    percentage = spec.percentage_of_nodes_to_score
    if percentage is None:
        percentage = given.percentage_of_nodes_to_score
    try:
        profile = Profile(made, percentage=EVERY_NODE if percentage is None else percentage)
    except ValueError as error:
        raise ConfigurationError(f"{path}.plugins: {error}") from error
    total = sum(item.weight * item.scale for item in made if item.score or item.topology)
    if total > _TOTAL_MAX:
        raise ConfigurationError(f"{path}.plugins: the weights add up to too much")
    return profile


def _configured(spec: ProfileSpec, path: str) -> dict[str, Plugin]:
    """Every plugin there is, with the profile's arguments."""
    known = {plugin.name: plugin for plugin in plugins.AVAILABLE}
    seen: set[str] = set()
    for at, item in enumerate(spec.plugin_config):
        here = f"{path}.pluginConfig[{at}]"
        plugin = known.get(item.name)
        if plugin is None:
            raise _unknown(f"{here}.name", item.name)
        if item.name in seen:
            raise ConfigurationError(f"{here}.name: {item.name} is there twice")
        seen.add(item.name)
        if plugin.configure is not None:
            known[item.name] = plugin.configure(item.args, f"{here}.args")
        elif item.args:
            raise ConfigurationError(f"{here}.args: {item.name} takes no arguments")
    return known


def _unknown(path: str, name: str) -> ConfigurationError:
    listed = ", ".join(sorted(plugin.name for plugin in plugins.AVAILABLE))
    return ConfigurationError(f"{path}: no plugin is called {name!r}; there are {listed}")


# --- which plugins, and what of each ---------------------------------------------------------------


def _refuse_idle(enabled: Sequence[Enabled], point: str, path: str, known: _Known) -> None:
    """Refuse plugins without an effect at the point, and weights without an effect."""
    for at, item in enumerate(enabled):
        if lacking := _what_it_lacks(known[item.name], point):
            text = f"{item.name} does not {lacking}"
            raise ConfigurationError(f"{path}.enabled[{at}].name: {text}")
        if item.weight and point != "score":
            text = "counts at score and multiPoint only"
            raise ConfigurationError(f"{path}.enabled[{at}].weight: {text}")


def _chosen(given: Plugins, path: str, known: _Known) -> list[Plugin]:
    default = [plugin.name for plugin in plugins.DEFAULT]
    whole = _merged(default, given.multi_point, f"{path}.multiPoint", known)
    weights = {item.name: item.weight or 1 for item in given.multi_point.enabled}
    used = dict.fromkeys(whole)
    kept: dict[str, dict[str, None]] = {}
    for point in _POINTS:
        changes: PluginSet = getattr(given, point)
        here = f"{path}.{_camel(point)}"
        kept[point] = dict.fromkeys(_merged(whole, changes, here, known))
        _refuse_idle(changes.enabled, point, here, known)
        used.update(kept[point])
        if point == "score":
            weights.update({item.name: item.weight or 1 for item in changes.enabled})
    return [_reduced(known[name], kept, weights) for name in used]


def _reduced(
    plugin: Plugin, kept: Mapping[str, Mapping[str, None]], weights: Mapping[str, int]
) -> Plugin:
    made = replace(plugin, weight=weights.get(plugin.name, plugin.weight))
    for point in _POINTS:
        if plugin.name not in kept[point]:
            made = _without_point(made, point)
    return made


def _merged(before: list[str], changes: PluginSet, path: str, known: _Known) -> list[str]:
    """The names after taking out and putting in."""
    gone = {item.name for item in changes.disabled}
    for at, item in enumerate(changes.disabled):
        if item.name != _ALL and item.name not in known and item.name not in _ELSEWHERE:
            raise _unknown(f"{path}.disabled[{at}].name", item.name)
    left = [] if _ALL in gone else [name for name in before if name not in gone]
    seen: set[str] = set()
    for at, enabled in enumerate(changes.enabled):
        if enabled.name not in known:
            raise _unknown(f"{path}.enabled[{at}].name", enabled.name)
        if enabled.name in seen:
            raise ConfigurationError(f"{path}.enabled[{at}].name: {enabled.name} is there twice")
        seen.add(enabled.name)
        if enabled.name not in left:
            left.append(enabled.name)
    return left


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


# --- plugins that are enabled at some extension points only ----------------------------------------


@dataclass(frozen=True, slots=True)
class _ExtensionPoint:
    """What a plugin does at a point of the configuration.

    Attributes:
        verb: completes "the plugin does not …".
        fields: of ``Plugin``, that are dropped where the point is disabled.
        also: further ones, any of which is enough to be enabled there.
    """

    verb: str
    fields: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


# Stages that prepare or follow another one are part of that one here.
_POINTS: Mapping[str, _ExtensionPoint] = {
    "pre_enqueue": _ExtensionPoint("hold pods back", ("pre_enqueue",)),
    "queue_sort": _ExtensionPoint("sort the queue", ("queue_sort",)),
    "pre_filter": _ExtensionPoint("filter", ("pre_filter",), ("filter", "topology")),
    "filter": _ExtensionPoint("filter", ("filter",), ("topology",)),
    "post_filter": _ExtensionPoint("act when no node fits", ("post_filter",)),
    "pre_score": _ExtensionPoint("score", (), ("score", "topology")),
    "score": _ExtensionPoint("score", ("score",), ("topology",)),
    "reserve": _ExtensionPoint("reserve", ("reserve", "device_allocator")),
    "permit": _ExtensionPoint("permit", ("permit",)),
    "pre_bind": _ExtensionPoint("act before binding"),
    "bind": _ExtensionPoint("bind", ("bind",)),
    "post_bind": _ExtensionPoint("act after binding"),
}
"""By their names in ``Plugins``."""

# Where Kubernetes' plugin of the name does what is done at another point here, or is not needed.
_AS_ELSEWHERE: Mapping[str, frozenset[str]] = {
    "VolumeBinding": frozenset({"filter", "pre_score", "score", "reserve", "pre_bind"}),
}


class _ScoreOnly:
    """A plugin about other nodes that rules none out."""

    def __init__(self, whole: TopologyPlugin) -> None:
        self.concerns = whole.concerns
        self.explain = whole.explain
        self.ranking = whole.ranking

    def rules(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> Sequence[DomainRule]:
        return ()


def _without_point(plugin: Plugin, point: str) -> Plugin:
    """The plugin without an extension point; one that does nothing there stays as it is."""
    changes: dict[str, Any] = dict.fromkeys(_POINTS[point].fields)
    if point == "filter":
        changes["topology"] = plugin.topology and _ScoreOnly(plugin.topology)
    if point == "score":
        changes["weight"] = 0
    return replace(plugin, **changes)


def _what_it_lacks(plugin: Plugin, point: str) -> str:
    """What a plugin does not do that is enabled at a point; empty if it does, or need not."""
    here = _POINTS[point]
    does = any(getattr(plugin, field) is not None for field in (*here.fields, *here.also))
    return "" if does or point in _AS_ELSEWHERE.get(plugin.name, ()) else here.verb
