"""An operator of kopf for ConfigMaps, as its documentation writes one: ``kopf run`` starts it."""

from typing import Any

import kopf

MINE = {"managed": "yes"}


@kopf.on.create("configmaps", labels=MINE)
def create(name: str, patch: Any, **_: Any) -> dict[str, bool]:
    patch.setdefault("data", {})["answer"] = f"hello {name}"
    patch.status["seen"] = "yes"  # ConfigMaps have no status: Kubernetes drops it with a warning
    print("created", name, flush=True)
    return {"handled": True}  # goes into the status, too


@kopf.on.update("configmaps", labels=MINE, field="data.question")
def update(name: str, new: str, patch: Any, **_: Any) -> None:
    patch.setdefault("data", {})["answer"] = f"{new}?"
    print("updated", name, flush=True)


@kopf.on.delete("configmaps", labels=MINE)
def delete(name: str, **_: Any) -> None:
    print("deleted", name, flush=True)
