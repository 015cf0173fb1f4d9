"""Control groups of both versions, on a tree of files that looks like the kernel's."""

from pathlib import Path

import pytest
from tests.unit.agent.builders import container, pod

from grange.agent.container_limits import limits_of
from grange.agent.container_runtime import ContainerID, ContainerLimits, RuntimeFailedError
from grange.agent.runtimes.process import cgroups, control_group
from grange.agent.runtimes.process.cgroups import ControlGroups, GroupUsage

TARGET = ContainerID("uid-1", "main", 2)
V1 = ("cpu", "cpuacct", "memory", "pids")
MIB = 1024 * 1024


def machine(root: Path, mounts: list[str], groups: list[str]) -> Path:
    """A root directory with these lines in what the kernel shows of this process."""
    own = root / "proc" / "self"
    own.mkdir(parents=True)
    (own / "mountinfo").write_text("".join(f"{line}\n" for line in mounts))
    (own / "cgroup").write_text("".join(f"{line}\n" for line in groups))
    return root


def version_1(root: Path, controllers: tuple[str, ...] = V1) -> Path:
    mounts = [
        f"30 20 0:{n} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}"
        for n, name in enumerate(controllers)
    ]
    for name in controllers:
        (root / "sys/fs/cgroup" / name / "ours").mkdir(parents=True)
    return machine(root, mounts, [f"{n}:{name}:/ours" for n, name in enumerate(controllers)])


def version_2(root: Path, controllers: str = "cpu io memory pids") -> Path:
    own = root / "sys/fs/cgroup/ours"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text(controllers)
    mounts = ["30 20 0:9 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"]
    return machine(root, mounts, ["0::/ours"])


def found(root: Path) -> ControlGroups:
    groups = cgroups.find("grange-x", root)
    assert groups is not None
    return groups


def contents(root: Path, suffix: str) -> dict[str, str]:
    files = (root / "sys").rglob(f"{suffix}/*")
    return {item.name: item.read_text() for item in files if item.is_file()}


def test_version_1_limits_are_in_each_hierarchy(tmp_path: Path) -> None:
    groups = found(version_1(tmp_path))
    made = groups.make(TARGET, ContainerLimits(cpu_milli=250, memory_bytes=64 * MIB))
    base = tmp_path / "sys/fs/cgroup"
    assert sorted(made) == [f"{base}/{name}/ours/grange-x/uid-1.main.2" for name in V1]
    assert contents(tmp_path, "uid-1.main.2") == {
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "25000",
        "memory.limit_in_bytes": str(64 * MIB),
        "pids.max": "16384",
    }


def test_version_2_limits_are_in_one_directory(tmp_path: Path) -> None:
    groups = found(version_2(tmp_path))
    (made,) = groups.make(TARGET, ContainerLimits(cpu_milli=1500, memory_bytes=64 * MIB))
    own = tmp_path / "sys/fs/cgroup/ours"
    assert made == f"{own}/grange-x/uid-1.main.2"
    assert (own / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert contents(tmp_path, "uid-1.main.2") == {
        "cpu.max": "150000 100000",
        "memory.max": str(64 * MIB),
        "memory.oom.group": "1",
        "pids.max": "16384",
    }


@pytest.mark.parametrize("limits", [ContainerLimits(cpu_milli=1), ContainerLimits(memory_bytes=1)])
def test_what_is_not_limited_is_not_written(tmp_path: Path, limits: ContainerLimits) -> None:
    groups = found(version_2(tmp_path))
    groups.make(TARGET, limits)
    written = set(contents(tmp_path, "uid-1.main.2")) - {"pids.max"}
    assert written == ({"cpu.max"} if limits.cpu_milli else {"memory.max", "memory.oom.group"})


def test_controllers_that_lack_make_it_impossible(tmp_path: Path) -> None:
    assert cgroups.find("x", version_1(tmp_path / "1", ("cpu", "pids"))) is None
    assert cgroups.find("x", version_2(tmp_path / "2", "cpu pids")) is None
    assert cgroups.find("x", tmp_path / "3") is None


def test_directory_that_is_not_ours_makes_it_impossible(tmp_path: Path) -> None:
    root = version_1(tmp_path)
    (root / "sys/fs/cgroup/memory/ours").rmdir()
    assert cgroups.find("x", root) is None


def test_refused_limit_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    root = version_2(tmp_path)
    groups = found(root)
    (root / "sys/fs/cgroup/ours/grange-x/uid-1.main.2").write_text("in the way")
    with pytest.raises(RuntimeFailedError, match=r"cannot limit it: .*check resources\.limits"):
        groups.make(TARGET, ContainerLimits(cpu_milli=1))


def test_usage_leaves_out_files_that_can_be_dropped(tmp_path: Path) -> None:
    groups = found(version_2(tmp_path))
    assert groups.usage(TARGET) is None
    (made,) = groups.make(TARGET, ContainerLimits(memory_bytes=1))
    Path(made, "memory.current").write_text("5000\n")
    Path(made, "memory.stat").write_text("anon 1000\ninactive_file 2000\n")
    Path(made, "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    assert groups.usage(TARGET) == GroupUsage(1.5, 3000)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("memory.events", "low 0\noom 3\noom_kill 2\n"),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ],
)
def test_kills_are_counted(tmp_path: Path, name: str, text: str) -> None:
    assert control_group.out_of_memory_kills([str(tmp_path)]) == 0
    (tmp_path / name).write_text(text)
    assert control_group.out_of_memory_kills([str(tmp_path)]) == 2


def test_groups_of_ended_attempts_are_removed(tmp_path: Path) -> None:
    parent = tmp_path / "groups"
    for name in ("uid-1.main.2", "uid-1.main.1", "uid-2.a.b.0", "other"):
        (parent / name).mkdir(parents=True)
    groups = ControlGroups(dict.fromkeys(("cpu", "memory"), parent), is_unified=True)
    groups.prune([TARGET])
    assert sorted(item.name for item in parent.iterdir()) == ["other", "uid-1.main.2"]


def test_limits_are_rounded_up_to_bytes() -> None:
    limits = {"cpu": "1500m", "memory": "1Ki", "example.com/gpu": 1}
    spec = pod(container(resources={"limits": limits})).spec.containers[0]
    assert limits_of(spec) == ContainerLimits(1500, 1024)
    assert limits_of(pod(container()).spec.containers[0]) == ContainerLimits(0, 0)
