"""Pods made alike share what was computed for the first; whatever differs is computed again."""

from typing import Any

import pytest

from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service, ServiceSpec
from grange.api.meta import ObjectMeta
from grange.api.quantity import QuantityError
from grange.base.log import Logger
from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.cycle import Cycle
from grange.scheduler.event_handlers import EventHandlers
from grange.scheduler.framework import Profile
from grange.scheduler.podinfo import PodInfo, PodInfoCache
from grange.scheduler.queue import SchedulingQueue
from grange.sim import builders

BLUE = {"colour": "blue"}
CONSTRAINT = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": BLUE},
    "matchLabelKeys": ["version"],
}
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": BLUE}}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"requests": {"cpu": "1"}},
    {"requests": {"cpu": "2"}},
    {"labels": BLUE},
    {"labels": {**BLUE, "version": "1"}, "topologySpreadConstraints": [CONSTRAINT]},
    {"labels": {**BLUE, "version": "2"}, "topologySpreadConstraints": [CONSTRAINT]},
    {"labels": BLUE, "affinity": APART},
    {"nodeSelector": {"disk": "ssd"}},
    {"schedulerName": "grange"},
]


def computed(profile: Profile, pod: Pod) -> PodInfo:
    info = PodInfo.of(pod)
    profile.sign(info)
    return info


def test_info_is_what_would_have_been_computed_for_each() -> None:
    profile = Profile(plugins.DEFAULT)
    templates = PodInfoCache(lambda pod: computed(profile, pod))
    for number in range(3):
        for at, variant in enumerate(VARIANTS):
            for namespace in ("default", "other"):
                pod = builders.pod(f"p{number}-{at}", namespace=namespace, **variant)
                info = templates.info(pod)
                assert info == computed(profile, pod)
                assert info.pod is pod
                assert info.uid == pod.metadata.uid
    assert templates.computed == 2 * len(VARIANTS)


def test_there_are_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    templates = PodInfoCache(PodInfo.of)
    for number in range(3_000):
        templates.info(builders.pod("p", priority=number))
    assert len(templates._by_bytes) <= 1024
    assert templates.computed == 3_000


def test_what_cannot_be_read_is_reported_of_every_pod() -> None:
    templates = PodInfoCache(PodInfo.of)
    for name in ("a", "b"):
        with pytest.raises(QuantityError):
            templates.info(builders.pod(name, requests={"cpu": "many"}))


def test_a_service_changes_what_its_pods_have_in_common(log: Logger) -> None:
    profile = Profile(plugins.DEFAULT)
    handlers = EventHandlers(
        Cycle(profile, Cache()),
        SchedulingQueue(profile),
        frozenset(),
        now=lambda: 0.0,
        log=log,
    )
    assert handlers.info(builders.pod("a", labels=BLUE)).spread == ()
    meta = ObjectMeta(name="blue", namespace="default")
    service = Service(metadata=meta, spec=ServiceSpec(selector=BLUE))
    handlers.service_updated(service)
    assert len(handlers.info(builders.pod("b", labels=BLUE)).spread) == 2
    handlers.service_deleted(service)
    assert handlers.info(builders.pod("c", labels=BLUE)).spread == ()
