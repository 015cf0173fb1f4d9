"""LoadTests as TestSessions.

Fields keep their meaning; two rules differ on purpose. The timeout counts from the moment at which
all components are ready, so that a wait for machines does not use it up, and the time to live counts
from the end.
"""

import re
from dataclasses import dataclass
from typing import Any

from grange.api import codec, names
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.cli.loadtests.loadtest_defaults import LoadTestDefaults
from grange.cli.loadtests.loadtest_fields import InvalidLoadTest, LoadTestObject
from grange.cli.loadtests.loadtest_pods import NAME_MAX, ComponentConverter

GROUP, KIND = "e2etest.grpc.io", "LoadTest"
SERVER_PORT = "10010"
"""Of the servers that a scenario has; the operator overwrites what the scenario names."""

_TIMEOUT_S = 900  # where a LoadTest has none
_PROVISION_S = 300  # a session's; clone and build are part of it
_SESSION_MAX = names.DNS_LABEL_MAX - 1 - NAME_MAX
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")
_NOT_IN_VALUES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class ConvertedLoadTest:
    """A session that was made of a LoadTest.

    Attributes:
        document: the TestSession.
        notes: what has no equal or was changed, as lines that begin with the field.
    """

    document: Document
    notes: tuple[str, ...] = ()


def is_loadtest(document: Document) -> bool:
    """Whether a manifest is a LoadTest, of whatever version."""
    api_version = document.get("apiVersion")
    group = api_version.partition("/")[0] if isinstance(api_version, str) else ""
    return group == GROUP and document.get("kind") == KIND


def convert(document: Document, defaults: LoadTestDefaults | None = None) -> ConvertedLoadTest:
    """The session of a LoadTest.

    Raises:
        InvalidLoadTest: it has no driver, nothing to run, or a field of the wrong type.
    """
    document = codec.clone(document)  # parts of it go into the session and are changed there
    spec = LoadTestObject(document.get("spec"), "spec")
    metadata, notes = _metadata(LoadTestObject(document.get("metadata"), "metadata"))
    timeout_s = spec.number("timeoutSeconds")
    ttl_s = spec.number("ttlSeconds")
    used = defaults or LoadTestDefaults()
    limit_s = timeout_s or _TIMEOUT_S
    variables = {"POD_TIMEOUT": str(limit_s), "KILL_AFTER": used.kill_after}
    converter = ComponentConverter(used, variables)
    made: Document = {}
    if test_name := _test_name(metadata):
        made["testName"] = test_name
    results = spec.part("results")
    table = results.text("bigQueryTable")
    if "driver" not in spec and not used.driver_image:
        raise InvalidLoadTest(
            "spec.driver: required; name one, or give the operator's file with --defaults"
        )
    destination = {"BQ_RESULT_TABLE": table} if table else {}
    made["driver"] = converter.convert(spec.part("driver"), "driver", destination)
    for field in ("servers", "clients"):
        role = field.removesuffix("s")
        if found := [converter.convert(item, role) for item in spec.parts(field)]:
            made[field] = found
    scenario, about = _scenario(spec.text("scenariosJSON"))
    if scenario is not None:
        made["scenario"] = scenario
    made["timeouts"] = {"runSeconds": limit_s, "provisionSeconds": max(limit_s, _PROVISION_S)}
    if ttl_s is not None:
        made["ttlSecondsAfterFinished"] = ttl_s
    notes += [*about, *converter.notes]
    if table:
        notes.append(
            "spec.results.bigQueryTable: the driver gets BQ_RESULT_TABLE; name spec.evidence.metrics "
            "to keep results here as well"
        )
    rest = [*results.rest(), *spec.rest()]
    notes += [f"{path}: has no equal and is left out" for path in rest]
    session = {"apiVersion": "grange.dev/v1alpha1", "kind": "TestSession", "metadata": metadata}
    return ConvertedLoadTest({**session, "spec": made}, tuple(notes))


def _metadata(source: LoadTestObject) -> tuple[Document, list[str]]:
    """Name, namespace, labels and annotations; other fields are the server's."""
    metadata: Document = {}
    notes: list[str] = []
    for field in ("name", "generateName"):
        given = source.text(field)
        if not given:
            continue
        prefix = field == "generateName"
        metadata[field] = _session_name(given, prefix=prefix)
        if metadata[field] != given:
            notes.append(
                f"metadata.{field}: {given!r} becomes {metadata[field]!r}, so that with the "
                "component it can be the name of a host"
            )
    if not metadata:
        metadata["generateName"] = "loadtest-"
    if namespace := source.text("namespace"):
        metadata["namespace"] = namespace
    for field in ("labels", "annotations"):
        if found := source.strings(field):
            metadata[field] = found
    return metadata, notes


def _session_name(given: str, *, prefix: bool) -> str:
    name = _NOT_IN_NAMES.sub("-", given.lower()).lstrip("-0123456789")
    name = name or "loadtest"
    room = _SESSION_MAX - (5 if prefix else 0)  # the server adds five characters
    if len(name) > room:
        name = f"{name[: room - names.DIGEST_LENGTH - 2].rstrip('-')}-{names.digest(given)}"
        return f"{name}-" if prefix else name
    return name if prefix else name.rstrip("-") or "loadtest"


def _test_name(metadata: Document) -> str:
    """The scenario that the runs of one test have in common, where the manifest names it."""
    given = (metadata.get("annotations") or {}).get("scenario") or ""
    return _NOT_IN_VALUES.sub("-", given)[: names.DNS_LABEL_MAX].strip("-._")


def _scenario(text: str) -> tuple[Any, list[str]]:
    """The scenario as JSON, with the port of its servers."""
    if not text.strip():
        return None, []
    try:
        found = codec.decode_any(text.encode())
    except ApiError:
        return text, ["spec.scenariosJSON: is not JSON; the driver gets the text as a JSON string"]
    scenarios = found.get("scenarios") if isinstance(found, dict) else None
    for item in scenarios if isinstance(scenarios, list) else [scenarios]:
        if isinstance(item, dict) and isinstance(item.setdefault("server_config", {}), dict):
            item["server_config"]["port"] = SERVER_PORT
    return found, []
