"""Documents of sessions and nodes for the tests of evidence."""

from typing import Any

DRIVER: dict[str, Any] = {
    "name": "driver",
    "role": "driver",
    "pod": "bench-x7-driver",
    "node": "m0",
    "image": "driver@sha256:1",
    "health": "Succeeded",
    "exitCode": 0,
}
SERVER: dict[str, Any] = {
    "name": "server",
    "role": "server",
    "pod": "bench-x7-server",
    "node": "m1",
    "image": "server@sha256:2",
    "health": "Ready",
    "address": "10.0.0.2:10000",
}


def session(
    phase: str = "Succeeded", verdict: str = "Passed", reason: str = "", **status: Any
) -> dict[str, Any]:
    """A session that ran for 90.5 seconds on two machines."""
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "TestSession",
        "metadata": {
            "name": "bench-x7",
            "namespace": "ci",
            "uid": "u-1",
            "generateName": "bench-",
            "creationTimestamp": "2026-11-21T10:00:00Z",
        },
        "spec": {
            "driver": {
                "image": "driver",
                "env": [
                    {"name": "SIZE", "value": "64"},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "t", "key": "k"}}},
                ],
            },
            "scenario": {"qps": 100},
        },
        "status": {
            "phase": phase,
            "verdict": verdict,
            "reason": reason,
            "attempt": 1,
            "startTime": "2026-11-21T10:01:00Z",
            "runTime": "2026-11-21T10:01:10Z",
            "completionTime": "2026-11-21T10:02:30.500000Z",
            "components": [SERVER, DRIVER],
            "events": [
                {"type": "QUEUE", "time": "2026-11-21T10:00:00.000001Z", "message": "50 % done"},
                {"type": "DONE", "time": "2026-11-21T10:02:30.500000Z"},
            ],
            "metrics": [{"name": "p99", "value": 1.25, "unit": "ms", "better": "Lower"}],
            **status,
        },
    }


def node(name: str, pool: str = "workers") -> dict[str, Any]:
    """A machine of a pool."""
    return {
        "metadata": {"name": name, "labels": {"pool": pool}},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi"},
            "nodeInfo": {"kernelVersion": "6.1.0", "osImage": "Debian 13", "architecture": "amd64"},
        },
    }
