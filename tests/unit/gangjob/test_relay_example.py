"""The operator of docs/tutorials/job-operator.md, on virtual time; a page test runs its commands."""

import ast
import re
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from grange.api.kinds import GANGJOB, POD
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim.api_fixture import ApiFixture, opened

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "job-operator"
PAGE = ROOT / "docs" / "tutorials" / "job-operator.md"


def relay() -> ModuleType:
    spec = util.spec_from_file_location("relay_example", EXAMPLE / "relay.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def finish(world: ApiFixture, name: str, phase: str) -> None:
    patch = {"status": {"phase": phase}}
    await world.client.patch(POD, name, "default", patch=patch, subresource="status")
    await world.settle(1)


async def pods(world: ApiFixture) -> list[str]:
    return [pod.metadata.name for pod in (await world.client.list(POD)).items]


async def start(world: ApiFixture) -> None:
    deps = world.new_deps()
    world.nursery.start(deps.informers.run())
    world.start(relay().Relay(deps).jobs)
    job: dict[str, Any] = yaml.safe_load((EXAMPLE / "relay.yaml").read_text())
    job["metadata"]["namespace"] = "default"
    await world.client.create(GANGJOB, job)
    await world.settle(1)


def test_page_shows_the_example_as_it_is() -> None:
    shown = re.findall(
        r'^```\w+ title="([^"]+)"\n(.*?)^```', PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert {name: text == (EXAMPLE / name).read_text() for name, text in shown} == {
        "relay.py": True,
        "relay.yaml": True,
    }


def test_example_is_short_and_imports_public_names_alone() -> None:
    text = (EXAMPLE / "relay.py").read_text()
    assert len(text.splitlines()) <= 60
    imported = {
        node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)
    }
    assert imported == {"functools", "grange", "grange.jobs", "typing"}


async def test_members_run_one_after_the_other(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        await start(world)
        for index in range(3):
            assert await pods(world) == [f"film-runner-{number}" for number in range(index + 1)]
            await finish(world, f"film-runner-{index}", "Succeeded")
        job = await world.client.get(GANGJOB, "film", "default")
        assert (job.status.phase, bool(job.status.completion_time)) == ("Succeeded", True)
        assert job.status.replica_statuses["runner"].succeeded == 3
        states = {item.type: item.status for item in job.status.conditions}
        assert states == {"Running": "False", "Succeeded": "True"}


async def test_deleted_member_comes_back_unless_it_is_done(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        await start(world)
        await finish(world, "film-runner-0", "Succeeded")
        for index in (0, 1):
            await world.client.delete(POD, f"film-runner-{index}", "default", grace_period_s=0)
        await world.settle(1)
        assert await pods(world) == ["film-runner-1"]


async def test_failed_member_ends_the_job(clock: Clock, rng: Stream, log: Logger) -> None:
    async with opened(ApiFixture(clock, rng, log)) as world:
        await start(world)
        await finish(world, "film-runner-0", "Failed")
        job = await world.client.get(GANGJOB, "film", "default")
        assert (job.status.phase, await pods(world)) == ("Failed", ["film-runner-0"])
