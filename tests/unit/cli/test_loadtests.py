"""``grange test convert``: LoadTests as TestSessions that the server accepts."""

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st
from tests.unit.api.jobs import fields

from grange.api import codec
from grange.api.kinds import TESTSESSION
from grange.api.meta import Document
from grange.cli.loadtests import conversion
from grange.cli.loadtests.loadtest_defaults import LoadTestDefaults, read_defaults
from grange.cli.loadtests.loadtest_fields import InvalidLoadTest
from grange.cli.verbs.test import convert as verb

MANIFESTS = Path(__file__).parent / "loadtests"


def manifest(name: str) -> Document:
    (found,) = codec.load_yaml_documents((MANIFESTS / name).read_text())
    return found


def defaults() -> LoadTestDefaults:
    return read_defaults(manifest("defaults.yaml"))


def loadtest(metadata: object = None, **spec: Any) -> Document:
    return {
        "apiVersion": "e2etest.grpc.io/v1",
        "kind": "LoadTest",
        "metadata": {"name": "qps"} if metadata is None else metadata,
        "spec": {"driver": {"run": [{"image": "i"}]}, **spec},
    }


def rejected(session: Document) -> list[str]:
    """Fields that the server rejects; namespace and suffix are those that it would choose."""
    meta = session["metadata"]
    name = meta.get("name") or f"{meta['generateName']}x7k2p"
    return fields(TESTSESSION, {**session, "metadata": {"namespace": "n", **meta, "name": name}})


def named(containers: list[Document]) -> dict[str, Document]:
    return {item["name"]: item for item in containers}


def variables(container: Document) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container["env"]}


@pytest.mark.parametrize(
    ("name", "used"), [("go.yaml", LoadTestDefaults()), ("prebuilt.yaml", defaults())]
)
def test_published_shapes_become_valid_sessions(name: str, used: LoadTestDefaults) -> None:
    converted = conversion.convert(manifest(name), used)
    assert rejected(converted.document) == []
    assert "&id" not in verb.yaml_text(converted)


def test_clone_and_build_are_init_containers() -> None:
    document = conversion.convert(manifest("go.yaml")).document
    (server,) = document["spec"]["servers"]
    pod = server["template"]["spec"]
    assert [item["name"] for item in pod["initContainers"]] == ["clone", "build"]
    clone, build = pod["initContainers"]
    assert variables(clone) == {
        "CLONE_REPO": "https://git.example/grpc-go.git",
        "CLONE_GIT_REF": "v1.60.0",
    }
    assert (clone["image"], build["image"]) == (
        "registry.example/clone:v3",
        "registry.example/go:1.21",
    )
    assert (build["command"], build["args"][0]) == (["go"], "build")
    assert variables(build) == {"CGO_ENABLED": "0"}
    (main,) = pod["containers"]
    for container in (clone, build, main):
        mount = {"name": "workspace", "mountPath": "/src/workspace"}
        assert mount in container["volumeMounts"]
    assert variables(main) == {"POD_TIMEOUT": "600", "KILL_AFTER": "30"}
    assert server["template"]["metadata"]["labels"] == {"language": "go"}


def test_roles_pools_limits_and_scenario_are_kept() -> None:
    converted = conversion.convert(manifest("go.yaml"))
    meta, spec = converted.document["metadata"], converted.document["spec"]
    assert meta["name"] == "go-unary-ping"
    assert meta["annotations"]["uniquifier"] == "nightly"
    assert spec["testName"] == "go_unary_ping_secure"
    assert spec["driver"]["name"] == "main-driver"
    assert [item.get("pool") for item in (spec["driver"], *spec["servers"])] == [
        "drivers",
        "workers-8core",
    ]
    assert [item.get("name") for item in spec["clients"]] == [None, "second"]
    assert spec["timeouts"] == {"runSeconds": 600, "provisionSeconds": 600}
    assert spec["ttlSecondsAfterFinished"] == 7200
    assert spec["scenario"]["scenarios"]["server_config"] == {
        "server_type": "ASYNC_SERVER",
        "port": "10010",
    }
    (driver,) = spec["driver"]["template"]["spec"]["containers"]
    assert variables(driver)["BQ_RESULT_TABLE"] == "e2e.unary"
    assert [note.partition(":")[0] for note in converted.notes] == [
        "spec.clients[1].metricsPort",
        "spec.results.bigQueryTable",
    ]


def test_defaults_of_the_operator_fill_gaps() -> None:
    converted = conversion.convert(manifest("prebuilt.yaml"), defaults())
    spec = converted.document["spec"]
    (main,) = spec["driver"]["template"]["spec"]["containers"]
    assert (main["image"], variables(main)["KILL_AFTER"]) == ("registry.example/driver:v3", "45")
    (client,) = spec["clients"]
    assert (client["pool"], client["port"]) == ("workers", 10001)
    containers = named(client["template"]["spec"]["containers"])
    assert list(containers) == ["main", "sidecar", "xds-server"]
    assert containers["main"]["image"] == "registry.example/python:3.11"
    assert containers["sidecar"]["image"] == "registry.example/envoy:v1"
    assert spec["testName"] == "python-asyncio-streaming"
    assert spec["timeouts"] == {"runSeconds": 900, "provisionSeconds": 900}


def test_long_names_stay_apart() -> None:
    """What makes them differ is at the end, and pods have to be hosts."""
    given = manifest("prebuilt.yaml")
    first = conversion.convert(given, defaults()).document
    given["metadata"]["name"] = given["metadata"]["name"].replace("00000001", "00000002")
    second = conversion.convert(given, defaults()).document
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["metadata"]["name"].startswith("nightly-python")
    assert rejected(second) == []


def test_missing_driver_comes_from_the_defaults() -> None:
    document = manifest("prebuilt.yaml")
    del document["spec"]["driver"]
    with pytest.raises(InvalidLoadTest, match=r"^spec\.driver: required; .* --defaults"):
        conversion.convert(document)
    made = conversion.convert(document, defaults()).document["spec"]["driver"]
    assert made["pool"] == "drivers"
    assert made["template"]["spec"]["containers"][0]["image"] == "registry.example/driver:v3"


def test_names_are_unique_in_the_session() -> None:
    worker = {"run": [{"image": "i"}]}
    document = loadtest(
        servers=[{**worker, "name": "a"}, {**worker, "name": "a"}, {**worker, "name": "client"}],
        clients=[{**worker, "name": "a"}, worker],
    )
    converted = conversion.convert(document)
    assert rejected(converted.document) == []
    names = [item.get("name") for item in converted.document["spec"]["servers"]]
    assert names[0] == "a"
    assert names[2] == "server-client"
    assert any(note.startswith("spec.servers[1].name: 'a' becomes") for note in converted.notes)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (loadtest(timeoutSeconds=0), r"^spec\.timeoutSeconds: 0 is not a positive integer"),
        (loadtest(ttlSeconds="1h"), r"^spec\.ttlSeconds: '1h' is not a positive integer"),
        (loadtest(servers={"a": 1}), r"^spec\.servers: .* is not a list; correct the LoadTest"),
        (loadtest(servers=[3]), r"^spec\.servers\[0\]: 3 is not an object"),
        (loadtest(servers=[{}]), r"^spec\.servers\[0\]\.run\[0\]\.image: required .*--defaults"),
        (loadtest(clients=[{"build": {"args": [1]}}]), r"^spec\.clients\[0\]\.build\.args\[0\]: 1"),
        (loadtest(metadata=[]), r"^metadata: \[\] is not an object"),
        (loadtest(metadata={"labels": {"a": 1}}), r"^metadata\.labels\[a\]: 1 is not a string"),
    ],
)
def test_wrong_fields_are_named(document: Document, message: str) -> None:
    with pytest.raises(InvalidLoadTest, match=message):
        conversion.convert(document)


def test_what_has_no_equal_is_noted() -> None:
    document = loadtest(
        servers=[{"run": {"image": "i"}, "sidecars": []}],
        scenariosJSON="{not json",
        priority=3,
    )
    converted = conversion.convert(document)
    assert converted.document["spec"]["scenario"] == "{not json"
    assert [note.partition(":")[0] for note in converted.notes] == [
        "spec.scenariosJSON",
        "spec.servers[0].sidecars",
        "spec.priority",
    ]


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a": 1e999}', "NaN", r'"\ud800"', "9" * 400, '{"a": {}, "a": {}}', "null"],
)
def test_odd_scenarios_can_be_printed(text: str) -> None:
    converted = conversion.convert(loadtest(scenariosJSON=text))
    assert rejected(converted.document) == []
    assert codec.load_yaml_documents(verb.yaml_text(converted))
    assert codec.encode(converted.document)


def test_verb_prints_sessions_and_other_objects(tmp_path: Path) -> None:
    file = tmp_path / "both.yaml"
    other = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"
    file.write_text((MANIFESTS / "go.yaml").read_text() + other)
    outcome = CliRunner().invoke(verb.command, [str(file)])
    assert outcome.exit_code == 0, outcome.output
    session, kept = codec.load_yaml_documents(outcome.stdout)
    assert (session["kind"], kept["kind"]) == ("TestSession", "ConfigMap")
    assert outcome.stdout.startswith("# spec.clients[1].metricsPort: metrics are not collected")
    assert "Warning: LoadTest/go-unary-ping: spec.results.bigQueryTable" in outcome.stderr
    one = CliRunner().invoke(verb.command, [str(MANIFESTS / "go.yaml"), "-o", "json"])
    assert codec.decode_any(one.stdout.encode())["kind"] == "TestSession"


_WORDS = st.one_of(st.text(max_size=70), st.sampled_from(["driver", "server", "a", "main"]))
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _WORDS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
_RUN = st.lists(
    st.fixed_dictionaries({"image": st.just("i")}, optional={"name": _WORDS}), max_size=2
)
_COMPONENT = st.fixed_dictionaries(
    {"run": _RUN},
    optional={
        "name": _WORDS,
        "language": _WORDS,
        "pool": st.just("workers"),
        "clone": st.fixed_dictionaries({}, optional={"repo": _WORDS, "gitRef": _WORDS}),
        "metricsPort": st.integers(1, 65535),
    },
)
_SPEC = {
    "driver": _COMPONENT,
    "servers": st.lists(_COMPONENT, max_size=4),
    "clients": st.lists(_COMPONENT, max_size=4),
    "timeoutSeconds": st.integers(1, 2**31 - 1),
    "ttlSeconds": st.integers(1, 2**31 - 1),
    "scenariosJSON": st.text(max_size=20),
}


@given(
    spec=st.one_of(
        _JSON, st.fixed_dictionaries({}, optional=dict.fromkeys([*_SPEC, "results"], _JSON))
    ),
    metadata=_JSON,
)
def test_garbage_is_converted_or_rejected(spec: object, metadata: object) -> None:
    document = {**loadtest(metadata), "spec": spec}
    try:
        converted = conversion.convert(document, defaults())
    except InvalidLoadTest as error:
        assert str(error).partition(":")[0].startswith(("spec", "metadata"))  # noqa: PT017  both are fine
    else:
        assert verb.yaml_text(converted)


@pytest.mark.parametrize("name", [":", "Main", "main", "clone", "x" * 64])
def test_unusable_container_name_is_refused(name: str) -> None:
    run = [{"image": "i"}, {"image": "i", "name": name}]
    clone = {"repo": "https://example.com/r", "image": "git"}
    document = {**loadtest({"name": "t"}), "spec": {"driver": {"run": run, "clone": clone}}}
    with pytest.raises(InvalidLoadTest, match=r"^spec\.driver\.run\[1\]\.name: "):
        conversion.convert(document, defaults())


@given(spec=st.fixed_dictionaries({}, optional=_SPEC), name=_WORDS, scenario=_WORDS)
def test_every_loadtest_becomes_a_valid_session(spec: Document, name: str, scenario: str) -> None:
    metadata = {"name": name, "annotations": {"scenario": scenario}}
    used = LoadTestDefaults(driver_image="d", languages={})
    document = {**loadtest(metadata), "spec": {**spec, "driver": spec.get("driver") or {}}}
    try:
        converted = conversion.convert(document, used)
    except InvalidLoadTest as error:
        # A worker without an image, or a container that Kubernetes would refuse, too.
        assert re.search(r"\.image: required|\.run\[[1-9]\]\.name: ", str(error))  # noqa: PT017  both are fine
        return
    assert rejected(converted.document) == []
