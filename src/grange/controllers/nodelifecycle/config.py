"""Settings of the node lifecycle controller."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeLifecycleConfig:
    """Thresholds; durations in seconds.

    Attributes:
        period_s: how often heartbeats are judged.
        grace_s: a node without a heartbeat for so long is silent. Agents renew every 10 s, so
            three renewals may be lost.
        default_toleration_s: how long pods without a toleration of silent or unready nodes stay on
            one before they are evicted. The API server gives pods without one tolerations
            of 300 s, so this is for pods that came by another way.
        disruption_share: when this share of the nodes (or more) is not healthy, nothing is evicted
            and nothing tainted NoExecute: more likely we are cut off than they are all dead.
        evictions_per_s: how many nodes may be tainted NoExecute per second, beyond ``burst``.
        burst: how many at once.
        clock_gap_s: when the monitor itself was late by this much (a machine that slept), every
            node gets a fresh grace period.
        orphan_grace_s: a pod whose node is gone is removed after so long; long enough for an agent
            to register its node again.
        stale_mark_s: a pod that others marked as about to be deleted, and that is still there after
            so long, is not marked any more, as in Kubernetes.
        finished_pods: at most so many finished pods are kept in all; the oldest go first.
        gc_period_s: how often pods are collected.
        workers: pods evicted at the same time.
    """

    period_s: float = 5.0
    grace_s: float = 40.0
    default_toleration_s: float = 300.0
    disruption_share: float = 1.0
    evictions_per_s: float = 0.1
    burst: int = 1
    clock_gap_s: float = 15.0
    orphan_grace_s: float = 10.0
    stale_mark_s: float = 120.0
    finished_pods: int = 12_500
    gc_period_s: float = 20.0
    workers: int = 4
