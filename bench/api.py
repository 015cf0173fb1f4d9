"""What one pod costs in the api room, from bytes to bytes, in microseconds.

Alone: ``python -m bench.api`` prints every step.
"""

import time
from collections.abc import Callable
from itertools import count

from grange.api import codec, schema
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.meta import Document
from grange.api.validation import validate

ROUNDS = 5
REPEATS = 4_000

BODY = codec.encode(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-7d9fc-x2x7q",
            "namespace": "default",
            "labels": {"app": "web", "app.kubernetes.io/name": "web", "tier": "front"},
            "annotations": {"example.com/note": "a text about the purpose of this pod"},
            "ownerReferences": [
                {
                    "apiVersion": "grange.dev/v1alpha1",
                    "kind": "ReplicationController",
                    "name": "web",
                    "uid": "6d3f0d0c-5a0b-4d6a-9b43-0d0c5a0b4d6a",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "web",
                    "image": "registry.example.com/web:1.2.3",
                    "command": ["/usr/bin/web"],
                    "args": ["--listen=:8080", "--root=/srv/www", "--log-level=info"],
                    "ports": [{"containerPort": 8080, "name": "http"}],
                    "resources": {
                        "requests": {"cpu": "100m", "memory": "64Mi"},
                        "limits": {"cpu": "1", "memory": "64Mi"},
                    },
                    "env": [
                        {"name": "MODE", "value": "production"},
                        {"name": "REGION", "value": "north"},
                        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    ],
                    "readinessProbe": {
                        "httpGet": {"port": "http", "path": "/healthz"},
                        "periodSeconds": 2,
                    },
                    "volumeMounts": [{"name": "settings", "mountPath": "/settings"}],
                }
            ],
            "volumes": [{"name": "settings", "configMap": {"name": "web"}}],
            "nodeSelector": {"kubernetes.io/os": "linux", "zone": "a"},
            "tolerations": [
                {"key": "dedicated", "operator": "Equal", "value": "web", "effect": "NoSchedule"}
            ],
        },
    }
)


def _microseconds(run: Callable[[], object]) -> float:
    """The best of several rounds: noise only ever adds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(REPEATS):
            run()
        best = min(best, (time.perf_counter() - start) / REPEATS)
    return best * 1e6


def _defaulted() -> Document:
    document = codec.decode_document(BODY)
    schema.apply_defaults(document, POD)
    return document


def _created() -> bytes:
    document = codec.decode_document(BODY)
    assert not schema.check(document, POD)
    schema.apply_defaults(document, POD)
    assert not validate(document, None, POD)
    return codec.encode(document)


def _first() -> Callable[[], bytes]:
    """As ``_created``, but every pod has another argument: nothing is known of its template."""
    number = count()

    def created() -> bytes:
        document = codec.decode_document(BODY)
        document["spec"]["containers"][0]["args"][0] = f"--listen=:{next(number)}"
        assert not schema.check(document, POD)
        schema.apply_defaults(document, POD)
        assert not validate(document, None, POD)
        return codec.encode(document)

    return created


def measure() -> dict[str, float]:
    """Microseconds a step, for a pod of 1.2 KB that is stored as 1.7 KB."""
    document = codec.decode_document(BODY)
    stored = _created()
    complete = codec.decode_document(stored)
    decode = _microseconds(lambda: codec.decode_document(BODY))
    return {
        "decode_us": decode,
        "check_us": _microseconds(lambda: schema.check(document, POD)),
        "defaults_us": _microseconds(_defaulted) - decode,
        "validate_us": _microseconds(lambda: validate(complete, None, POD)),
        "encode_us": _microseconds(lambda: codec.encode(complete)),
        "create_path_us": _microseconds(_created),
        "first_path_us": _microseconds(_first()),
        "view_us": _microseconds(lambda: codec.decode_view(stored, Pod)),
    }


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:16} {value:6.1f}")
