"""The example in docs/reference/reconcile.md works as described."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grange.api.kinds import CONFIGMAP
from grange.api.kinds.configmap import ConfigMap
from grange.api.meta import ObjectKey, ObjectMeta
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.reconcile.controller import Controller, Done, Result
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory
from grange.sim.api_fixture import ApiFixture, opened
from grange.sim.runner import run

DOCS = Path(__file__).parents[3] / "docs" / "reference"
PAGE = DOCS / "reconcile.md"


def documented() -> dict[str, Any]:
    """The names of the page, with the controller that it defines."""
    names: dict[str, Any] = {
        "CONFIGMAP": CONFIGMAP,
        "ConfigMap": ConfigMap,
        "Controller": Controller,
        "Deps": Deps,
        "Done": Done,
        "ObjectKey": ObjectKey,
        "Result": Result,
    }
    (example, *_) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(example, names)  # noqa: S102  our own page
    return names


async def test_controller_in_one_screen_works(
    client: Client, clock: Clock, rng: Stream, log: Logger
) -> None:
    names = documented()
    informers = InformerFactory(client, clock=clock, rng=rng, log=log)
    deps = Deps(client, informers, clock, rng, log, registry())
    greeter = names["Greeter"](deps)
    async with Nursery() as nursery:
        nursery.start(informers.run())
        nursery.start(greeter.run())
        meta = ObjectMeta(name="a", namespace="default")
        await client.create(CONFIGMAP, ConfigMap(metadata=meta))
        await clock.sleep(1)
        nursery.cancel()
    greeted = await client.get(CONFIGMAP, "a", "default")
    assert greeted.metadata.labels == {"greeted": "yes"}


def test_documented_test_of_a_controller_works() -> None:
    names = documented() | {
        "ApiFixture": ApiFixture,
        "Logger": Logger,
        "LoopClock": LoopClock,
        "Stream": Stream,
        "UTC": UTC,
        "datetime": datetime,
        "opened": opened,
        "run": run,
    }
    page = (DOCS / "testing.md").read_text()
    (example,) = re.findall(r"```text\n(def test_greeter.*?)```", page, re.DOTALL)
    exec(example, names)  # noqa: S102  our own page
    names["test_greeter_labels_what_is_new"]()
