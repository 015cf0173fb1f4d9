"""Pods and runs for tests of the agent."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from grange.agent.container_runtime import ContainerID, Run
from grange.api.kinds.pod import Pod
from grange.api.meta import Document

NODE = "node-1"
UID = "0f0f0f0f-0000-4000-8000-000000000001"
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def container(name: str = "main", program: str = "forever", **fields: Any) -> Document:
    return {"name": name, "command": [program], **fields}


def document(*containers: Document, name: str = "web", meta: Any = None, **spec: Any) -> Document:
    """A pod bound to the node; fields of the spec as keywords."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **(meta or {})},
        "spec": {
            "nodeName": NODE,
            "containers": list(containers) or [container()],
            **spec,
        },
    }


def pod(*containers: Document, status: Any = None, **spec: Any) -> Pod:
    """The same as a view, with a UID."""
    made = document(*containers, meta=spec.pop("meta", {}), **spec)
    made["metadata"].setdefault("uid", UID)
    made["status"] = status or {}
    return msgspec.convert(made, Pod)


def run(
    name: str = "main",
    attempt: int = 0,
    *,
    start: float = 0.0,
    end: float | None = None,
    code: int = 0,
    reason: str = "",
) -> Run:
    """A run that started and maybe ended so many seconds after ``NOW``."""
    return Run(
        ContainerID(UID, name, attempt),
        at(start),
        finished_at=at(end) if end is not None else None,
        exit_code=code,
        reason=reason or ("" if end is None else "Completed" if code == 0 else "Error"),
    )
