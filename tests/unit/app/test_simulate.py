"""``grange simulate``: traces in, figures out, and hostile input refused by its place."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from grange.app.simulate import openb, plot, policies, verb
from grange.app.simulate.replay import Replay, ReplayRun, by_load, by_time, inflation
from grange.app.simulate.trace import Trace, TraceError, kinds
from grange.base.clock import LoopClock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.environment import Environment
from grange.placement.fragmentation import TargetWorkload

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "simulate"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"


@pytest.fixture
def env(rng: Stream, log: Logger) -> Environment:
    return Environment(LoopClock(), rng, log, (), False, False, 80, lambda work: work)


def simulate(env: Environment, *words: str | Path) -> Result:
    return CliRunner().invoke(verb.command, [str(word) for word in words], obj=env)


def small(tmp_path: Path, nodes: str, pods: str) -> tuple[str, ...]:
    (tmp_path / "n.csv").write_text(NODES + nodes)
    (tmp_path / "p.csv").write_text(PODS + pods)
    return ("--nodes", str(tmp_path / "n.csv"), "--pods", str(tmp_path / "p.csv"))


def simulated(env: Environment, *words: str | Path) -> dict[str, Any]:
    done = simulate(env, *words, "-o", "json")
    assert done.exit_code == 0, done.output + str(done.exception)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# --- what comes out --------------------------------------------------------------------------------


def test_pods_wait_for_those_before_them(env: Environment, tmp_path: Path) -> None:
    """One GPU: the first stays ten seconds, the second waits for it, the third never fits."""
    pods = "a,100,1,1,1000,0,10,0\nb,100,1,1,1000,4,9,4\nc,100,1,2,1000,5,9,5\n"
    run = simulated(env, *small(tmp_path, "n,4000,1024,1,\n", pods))["runs"][0]
    assert (run["pods"], run["placed"], run["unplaced"]) == (3, 2, 1)
    assert run["waitSeconds"]["max"] == pytest.approx(6.0, abs=1.1)
    assert run["reasons"] == {"Insufficient grange.dev/gpu-milli": 1}
    assert run["allocated"] == 1.0


def test_a_table_has_a_line_a_policy(env: Environment) -> None:
    words = ("--nodes", EXAMPLE / "nodes.csv", "--pods", EXAMPLE / "pods.csv", "--inflate", "60")
    done = simulate(env, *words, "--policy", "fgd,best-fit", "--policy", "default")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["POLICY", "fgd", "best-fit", "default"]


def test_equal_seeds_give_equal_runs_and_others_do_not(env: Environment) -> None:
    words = ("--nodes", EXAMPLE / "nodes.csv", "--pods", EXAMPLE / "pods.csv", "--inflate", "90")
    found = [
        simulated(env, *words, "--policy", "random", "--seed", seed)["runs"][0]["points"]
        for seed in ("3", "3", "4")
    ]
    assert found[0] == found[1] != found[2]


def test_an_inflation_ends_at_the_load_and_none_leaves(env: Environment) -> None:
    words = ("--nodes", EXAMPLE / "nodes.csv", "--pods", EXAMPLE / "pods.csv", "--inflate", "130")
    run = simulated(env, *words, "--policy", "fgd")["runs"][0]
    loads = [point["requested"] for point in run["points"]]
    assert loads == sorted(loads)
    assert 1.3 <= loads[-1] < 1.4
    assert run["placed"] + run["unplaced"] == run["pods"]
    for point in run["points"]:
        assert 0 <= point["allocated"] <= min(1.0, point["requested"] + 1e-9)
        assert point["allocated"] + point["fragmented"] <= 1.0 + 1e-9


def test_no_device_is_ever_given_twice(log: Logger) -> None:
    """Every policy, in the scheduler's own books, at the end of an inflation."""
    trace = Trace(openb.read_nodes(EXAMPLE / "nodes.csv"), openb.read_pods(EXAMPLE / "pods.csv"))
    workload = kinds([item.pod for item in trace.arrivals])
    for name in policies.NAMES:
        replay = Replay(trace, policies.profile(name, workload, 1), TargetWorkload(workload), log)
        run = ReplayRun(name, 1, replay.resource)
        replay.play(inflation(trace, 1, 1.3), run, by_load())
        assert run.placed > 100
        for entry in replay.cache.snapshot().nodes.values():
            assert all(used <= 1000 for used in entry.usage.devices.used)
            held = sum(entry.usage.devices.used)
            assert held == entry.usage.scalars.get("grange.dev/gpu-milli", 0)
            assert held <= entry.allocatable.scalars.get("grange.dev/gpu-milli", 0)
            assert entry.usage.cpu_milli <= entry.allocatable.cpu_milli


def test_the_picture_is_well_formed_and_has_a_line_a_run(env: Environment, tmp_path: Path) -> None:
    words = ("--nodes", EXAMPLE / "nodes.csv", "--pods", EXAMPLE / "pods.csv", "--inflate", "50")
    picture = tmp_path / "a.svg"
    done = simulate(env, *words, "--policy", "fgd,random", "--seeds", "2", "--plot", picture)
    assert done.exit_code == 0, done.output
    tree = ET.fromstring(picture.read_text())  # noqa: S314  we wrote it ourselves
    lines = [item for item in tree.iter() if item.get("stroke-width") == "1.6"]
    assert len(lines) == 2 * 2 * 2  # policies, seeds, panels
    assert "fgd" in picture.read_text()


def test_a_picture_of_nothing_is_a_picture() -> None:
    drawn = plot.draw([], "<&>", by_load=True)
    assert ET.fromstring(drawn).tag.endswith("svg")  # noqa: S314  we wrote it ourselves


def test_manifests_and_a_configuration_file(env: Environment, tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"
        "status: {allocatable: {cpu: 2, memory: 4Gi, pods: 10}}\n"
    )
    pod = (
        "apiVersion: v1\nkind: Pod\n"
        "metadata: {{name: {0}, creationTimestamp: '2026-01-01T00:00:0{1}Z', "
        "annotations: {{grange.dev/stays-seconds: '5'}}}}\n"
        "spec: {{containers: [{{name: m, resources: {{requests: {{cpu: 2}}}}}}]}}\n---\n"
    )
    (tmp_path / "pods.yaml").write_text(pod.format("p", 0) + pod.format("q", 1))
    (tmp_path / "s.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: mine}]\n"
    )
    words = ("--nodes", tmp_path / "nodes.yaml", "--pods", tmp_path / "pods.yaml")
    found = simulated(env, *words, "--policy", tmp_path / "s.yaml")
    assert found["resource"] == "cpu"
    run = found["runs"][0]
    assert (run["placed"], run["unplaced"], run["allocated"]) == (2, 0, 1.0)
    assert run["waitSeconds"]["max"] == pytest.approx(4.0, abs=1.1)


def test_pods_waiting_for_one_pod_are_placed_after_backoff(
    env: Environment, tmp_path: Path
) -> None:
    """More pods than may leave backoff early in a second, and nothing else happens any more."""
    crowd = "".join(f"b{number},1,1,1,1,1,,1\n" for number in range(450))
    nodes = "n,4000,1024,1,\n"
    run = simulated(env, *small(tmp_path, nodes, f"a,1,1,1,1000,0,10,0\n{crowd}"))["runs"][0]
    assert (run["placed"], run["unplaced"]) == (451, 0)


def test_what_none_could_offer_is_no_part_of_the_workload(env: Environment, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"
        "spec: {containers: [{name: a, resources: {requests: {grange.dev/gpu-milli: 1500}}}]}"
    )
    words = ("--nodes", EXAMPLE / "nodes.csv", "--pods", tmp_path / "p.yaml", "--policy", "fgd")
    assert simulated(env, *words)["runs"][0]["unplaced"] == 1


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "pods", "message"),
    [
        ("n,x,1,0,\n", "a,1,1,0,0,0,0,0\n", "n.csv:2: cpu_milli: 'x' is no whole number"),
        ("n,1,1,65,\n", "a,1,1,0,0,0,0,0\n", "n.csv:2: gpu: '65' is no whole number from 0 to 64"),
        ("n,1,1,0\n", "a,1,1,0,0,0,0,0\n", "n.csv:2: 4 cells, the header has 5"),
        ("n,1,1,0,\nn,1,1,0,\n", "a,1,1,0,0,0,0,0\n", "n.csv:3: sn: n is there twice"),
        ("N_,1,1,0,\n", "a,1,1,0,0,0,0,0\n", "n.csv:2: sn: 'N_'"),
        ("", "a,1,1,0,0,0,0,0\n", "n.csv: has no line below its header"),
        ("n,1,1,0,\n", "a,-1,1,0,0,0,0,0\n", "p.csv:2: cpu_milli: '-1' is no whole"),
        ("n,1,1,0,\n", "a,1,1,2,500,0,0,0\n", "p.csv:2: gpu_milli: must be 1000 with more than"),
        ("n,1,1,0,\n", "a,1,1,1,0,0,0,0\n", "p.csv:2: gpu_milli: must be more than 0"),
        ("n,1,1,0,\n", "a,1,1,0,0,9,5,9\n", "p.csv:2: deletion_time: is before"),
        ("n,1,1,0,\n", "a,1,1,0,0,x,5,9\n", "p.csv:2: creation_time: 'x' is no number"),
        ("n,1,1,0,\n", "a,1,1,0,0,1e9,5,9\n", "p.csv:2: creation_time: '1e9' is no number"),
        ("n,1,1,0,\n", "a,٣,1,0,0,0,0,0\n", "p.csv:2: cpu_milli: "),
        ("n,1,1,0,\n", 'a,"1\n', "p.csv:"),
        ("n,1,1,0,\n", f"a,{'9' * 5000},1,0,0,0,0,0\n", "p.csv:2: cpu_milli: "),
    ],
)
def test_a_bad_line_is_named(
    env: Environment, tmp_path: Path, nodes: str, pods: str, message: str
) -> None:
    done = simulate(env, *small(tmp_path, nodes, pods))
    assert isinstance(done.exception, TraceError)
    assert message in str(done.exception)
    assert len(str(done.exception)) < 500


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.csv", "", "p.csv:1: name: must be there once"),
        ("p.csv", "name,name\n", "p.csv:1: name: must be there once"),
        ("p.csv", "a\x00b\n", "p.csv:1: name"),
        ("p.yaml", "a: [", "p.yaml: "),
        (
            "p.yaml",
            "apiVersion: v1\nkind: List\nitems: [5]",
            "p.yaml: an object without apiVersion",
        ),
        ("p.yaml", "apiVersion: v1\nkind: Pod\nmetadata: 5", "Pod/: "),
        ("p.yaml", "apiVersion: v1\nkind: Pod\nspec: {containers: [5]}", "Pod/: "),
        ("p.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: x}", "Secret/x: kind: must be"),
        ("p.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: 5", "Pod/x: "),
        (
            "p.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"
            "spec: {containers: [{name: a, resources: {requests: {cpu: many}}}]}",
            "Pod/x: spec.containers[0].resources.requests.cpu: ",
        ),
        (
            "p.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: x, annotations: "
            "{grange.dev/stays-seconds: '-1'}}\nspec: {containers: [{name: a}]}",
            "Pod/x: metadata.annotations.grange.dev/stays-seconds: '-1'",
        ),
    ],
)
def test_a_bad_file_is_named(
    env: Environment, tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    done = simulate(env, "--nodes", EXAMPLE / "nodes.csv", "--pods", tmp_path / name)
    assert isinstance(done.exception, GrangeError), done.exception
    assert message in str(done.exception)


CONTAINERS = "containers: [{name: c}]"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("containers: []", "spec.containers: Required"),
        ("containers: [{name: c, resources: {requests: {cpu: -4}}}]", "cpu: Invalid"),
        (f"{CONTAINERS}, foo: 1", 'unknown field "spec.foo"'),
        (f"{CONTAINERS}, priority: 9999999999999", "spec.priority: "),
        (f"{CONTAINERS}, tolerations: [{{operator: Foo}}]", "spec.tolerations[0].operator: "),
        (
            f"{CONTAINERS}, topologySpreadConstraints: [{{maxSkew: 9223372036854775807, "
            "topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}]",
            "spec.topologySpreadConstraints[0].maxSkew: ",
        ),
        (
            f"{CONTAINERS}, affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuring"
            "Execution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Foo}]}]}}}",
            "nodeSelectorTerms[0].matchExpressions[0].operator: ",
        ),
    ],
)
def test_a_pod_that_the_server_would_not_take_is_refused(
    env: Environment, tmp_path: Path, spec: str, field: str
) -> None:
    pods = tmp_path / "p.yaml"
    pods.write_text(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\nspec: {{{spec}}}\n")
    done = simulate(env, "--nodes", EXAMPLE / "nodes.csv", "--pods", pods)
    assert isinstance(done.exception, TraceError), done.exception
    assert str(done.exception).startswith(f"{pods}: Pod/x: ")
    assert field in str(done.exception)


def test_a_node_that_the_server_would_not_take_is_refused(env: Environment, tmp_path: Path) -> None:
    nodes = tmp_path / "n.yaml"
    nodes.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {allocatable: {cpu: '-4'}}\n"
    )
    done = simulate(env, "--nodes", nodes, "--pods", EXAMPLE / "pods.csv")
    assert isinstance(done.exception, TraceError), done.exception
    assert f"{nodes}: Node/a: status.allocatable.cpu: " in str(done.exception)


@pytest.mark.parametrize("inflate", [(), ("--inflate", "50")])
def test_nodes_that_offer_nothing_place_none(
    env: Environment, tmp_path: Path, inflate: tuple[str, ...]
) -> None:
    (tmp_path / "n.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {}")
    (tmp_path / "n.csv").write_text(f"{NODES}n,0,0,0,\n")
    for name in ("n.yaml", "n.csv"):
        words: tuple[str | Path, ...] = (
            *("--nodes", tmp_path / name, "--pods", EXAMPLE / "pods.csv"),
            *inflate,
        )
        picture = tmp_path / "a.svg"
        run = simulated(env, *words, "--plot", picture)["runs"][0]
        assert run["placed"] == 0
        assert ET.fromstring(picture.read_text()).tag.endswith("svg")  # noqa: S314  our own


def test_bytes_that_are_no_text_and_files_that_are_not_there(
    env: Environment, tmp_path: Path
) -> None:
    (tmp_path / "p.csv").write_bytes(b"\xff\xfe\x00")
    for name, message in (("p.csv", "not UTF-8"), ("q.csv", "no such file")):
        done = simulate(env, "--nodes", EXAMPLE / "nodes.csv", "--pods", tmp_path / name)
        assert message in str(done.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "fastest"), "--policy fastest: no such policy; there are default, best-fit"),
        (("--policy", ","), "--policy: name at least one"),
        (("--plot", "/nowhere/at/all.svg"), "--plot /nowhere/at/all.svg: there is no directory"),
        (("--plot", "a.png"), "--plot a.png: an SVG is drawn: name it a.svg"),
        (("--policy", "/dev/null/x"), "--policy /dev/null/x: no such policy"),
        (("--policy", str(EXAMPLE / "nodes.csv")), f"--policy {EXAMPLE / 'nodes.csv'}: "),
    ],
)
def test_a_bad_word_is_named(env: Environment, words: tuple[str, ...], message: str) -> None:
    files = ("--nodes", EXAMPLE / "nodes.csv", "--pods", EXAMPLE / "pods.csv")
    done = simulate(env, *files, *words)
    assert isinstance(done.exception, (GrangeError, SystemExit))
    assert message in done.output + str(done.exception)


@pytest.mark.parametrize(
    ("pods", "message"),
    [
        ("a,1,1,0,0,0,0,0\n", "no pod asks for grange.dev/gpu-milli"),
        ("a,1,1,1,1,0,0,0\n" + "".join(f"b{n},1,1,0,0,0,0,0\n" for n in range(99)), "at most"),
    ],
)
def test_an_inflation_without_end_is_refused(
    env: Environment, tmp_path: Path, pods: str, message: str
) -> None:
    nodes = "".join(f"n{number},4000,1024,64,\n" for number in range(400))
    done = simulate(env, *small(tmp_path, nodes, pods), "--inflate", "130")
    assert isinstance(done.exception, TraceError)
    assert message in str(done.exception)


def test_points_by_time_are_few(log: Logger) -> None:
    trace = Trace(openb.read_nodes(EXAMPLE / "nodes.csv"), openb.read_pods(EXAMPLE / "pods.csv"))
    workload = kinds([item.pod for item in trace.arrivals])
    replay = Replay(trace, policies.profile("best-fit", workload, 1), TargetWorkload(workload), log)
    run = ReplayRun("best-fit", 1, replay.resource)
    replay.play(iter(trace.arrivals), run, by_time(trace.arrivals))
    assert 50 < len(run.points) <= 202
    assert run.points[-1].allocated == 0.0
