"""Functions and commands run as jobs on a real control plane, from programs of both kinds."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.e2e.planes import Plane, eventually

import grange
from grange import NotFound
from grange.jobs import JobDeleted, JobFailed, RoleOptions, attach, run, start

pytestmark = pytest.mark.e2e

LIMIT_S = 240


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with Plane(tmp_path_factory.mktemp("plane") / "data") as made:
        yield made


@pytest.fixture(autouse=True)
def kubeconfig(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))


OFFSET = 100


def sum_part(numbers: list[int]) -> int:
    """Each member adds up its part."""
    index, members = int(os.environ["GRANGE_INDEX"]), int(os.environ["GRANGE_REPLICAS"])
    sys.stdout.write(f"part {index}\n")
    return OFFSET + sum(numbers[index::members])


def test_function_returns_from_all_members() -> None:
    with run(sum_part, args=([1, 2, 3, 4, 5],), replicas=2) as job:
        assert job.name.startswith("sum-part-")
        assert job.results(timeout_s=LIMIT_S) == (109, 106)
        assert job.result() == 109
        assert job.status().phase == "Succeeded"
        assert [str(line) for line in job.logs()] == ["[worker-0] part 0", "[worker-1] part 1"]
        assert [line.index for line in job.logs(index=1)] == [1]
        assert attach(job.name).result() == 109
    with pytest.raises(NotFound):
        attach(job.name)


def fail_once(limit: int) -> str:
    """Fail in the first attempts."""
    attempt = os.environ["GRANGE_ATTEMPT"]
    sys.stdout.write(f"attempt {attempt}\n")
    if int(attempt) < limit:
        raise ValueError(f"no luck in attempt {attempt}")
    return attempt


def test_failure_has_the_members_traceback() -> None:
    with (
        run(fail_once, args=(2,), retries=1, name="never") as job,
        pytest.raises(JobFailed) as caught,
    ):
        job.result(LIMIT_S)
    text = str(caught.value)
    assert text.startswith("job never has failed: worker 0 (pod never-worker-0) failed with exit")
    assert text.count("Traceback") == 1
    assert "test_job_runs.py" in text
    assert text.endswith("ValueError: no luck in attempt 1")
    with run(fail_once, args=(1,), retries=1, name="second") as job:
        assert job.result(LIMIT_S) == "1"


def test_logs_are_followed_over_restarts() -> None:
    with run(fail_once, args=(1,), retries=1) as job:
        lines = [line.text for line in job.logs(follow=True)]
        assert "attempt 0" in lines
        assert lines[-1] == "attempt 1"


async def serve_and_wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


def test_roles_end_with_their_leader() -> None:
    roles = {
        "server": RoleOptions(work=["sleep", "600"], completes=False),
        "chief": RoleOptions(args=(0.1,), leader=True, depends_on={"server": "Ready"}),
    }
    with run(serve_and_wait, roles=roles) as job:
        assert job.result(LIMIT_S) == "slept"


def test_cancel_ends_the_members(plane: Plane) -> None:
    job = run(serve_and_wait, args=(600,), replicas=2)
    lines = job.logs(follow=True)
    with pytest.raises(TimeoutError):
        job.wait(1)
    job.cancel()
    with pytest.raises(JobDeleted):
        job.result(LIMIT_S)
    with pytest.raises(JobDeleted):
        list(lines)
    eventually(lambda: job.name not in plane.grange("get", "pods"), "the pods are gone")


def test_handles_of_asyncio() -> None:
    async def main() -> None:
        async with (
            grange.connect() as client,
            await start(client, serve_and_wait, args=(0.2,), replicas=2) as job,
        ):
            assert await job.results(timeout_s=LIMIT_S) == ("slept", "slept")
        async with (
            grange.connect() as client,
            await start(client, ["sh", "-c", "echo one; echo two; sleep 600"]) as job,
            aclosing(job.logs(follow=True)) as lines,
        ):
            assert [(await anext(lines)).text for _ in range(2)] == ["one", "two"]

    asyncio.run(main())


def test_handle_is_used_where_a_loop_runs() -> None:
    async def cell() -> object:
        """As in a notebook, whose cells run in a loop."""
        with run(sum_part, args=([7],)) as job:
            return job.result(LIMIT_S)

    assert asyncio.run(cell()) == 107


def test_command_runs_in_the_environment_given(tmp_path: Path) -> None:
    target = tmp_path / "found"
    program = f"import os; open({str(target)!r}, 'w').write(os.environ['LEVEL'])"
    with run([sys.executable, "-c", program], env={"LEVEL": "3"}) as job:
        assert job.result(LIMIT_S) is None
    assert target.read_text() == "3"
