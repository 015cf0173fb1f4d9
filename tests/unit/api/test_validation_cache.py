"""What was found without fault is not looked at again; what has faults always is."""

from typing import Any

import pytest
from tests.unit.api.documents import controller, pod

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.validation import validate
from grange.api.validation.podspec import PROGRAMS
from grange.api.validation.validation_cache import ValidationCache


def looks(document: dict[str, Any], faults: int = 0, kind: Any = POD) -> int:
    """How often the containers of a document are looked at while it is judged."""
    before = PROGRAMS.looks
    assert len(validate(document, None, kind)) == faults
    return PROGRAMS.looks - before


def program(name: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, "command": ["serve"], **fields}]


def test_containers_of_a_template_are_looked_at_once() -> None:
    """Its pods differ in where they shall run and what they are called."""
    assert looks(pod(containers=program("once"))) == 1
    assert looks(pod(containers=program("once"), nodeName="n1")) == 0
    tolerations = [{"key": "a", "operator": "Exists"}]
    assert looks(pod(containers=program("once"), tolerations=tolerations, hostname="h")) == 0
    assert looks(pod(containers=program("once", image="web:2"))) == 1
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
    template["spec"]["containers"] = program("once")
    assert looks(controller(template=template), kind=REPLICATIONCONTROLLER) == 0


def test_what_has_faults_is_looked_at_and_reported_every_time() -> None:
    document = pod(containers=program("faulty", ports=[{"containerPort": 70_000}]))
    assert [looks(document, 1), looks(document, 1)] == [1, 1]


def test_other_rules_are_not_skipped() -> None:
    assert looks(pod(containers=program("other"))) == 1
    assert looks(pod(containers=program("other"), hostname="Not_A_Name"), 1) == 0


def test_volumes_belong_to_what_is_remembered() -> None:
    """A container that mounts a volume is right only next to that volume."""
    mounting = program("mounting", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    assert looks(pod(containers=mounting, volumes=[{"name": "v", "emptyDir": {}}])) == 1
    assert looks(pod(containers=mounting), 1) == 1
    assert looks(pod(containers=mounting, volumes=[{"name": "w", "emptyDir": {}}]), 1) == 1
    assert looks(pod(initContainers=program("twice"), containers=program("twice")), 1) == 1


@pytest.mark.parametrize("like", [1, 1.0, True, "1"])
def test_only_what_has_the_same_bytes_is_the_same(like: object) -> None:
    known = ValidationCache()
    for part in (1, 1.0, True, "1"):
        if type(part) is not type(like):
            known.add(known.unknown([part]))
    assert known.unknown([like])


def test_large_parts_are_not_kept() -> None:
    known = ValidationCache()
    for _ in range(2):
        known.add(known.unknown("x" * 10_000))
    assert known.looks == 2


def test_few_parts_are_kept_and_those_only_if_they_were_added() -> None:
    known = ValidationCache()
    for number in range(1_000):
        body = known.unknown(number)
        assert body
        if number % 2:
            known.add(body)
            assert not known.unknown(number)
        assert len(known) <= 256
    assert known.unknown(1)
    assert not known.unknown(999)


def test_unchanged_metadata_are_not_judged_again() -> None:
    """An object that was accepted by fewer rules can still report its status."""
    meta = {"name": "a", "namespace": "default", "labels": {"a": "-"}, "finalizers": ["plain"]}
    old = {**pod(), "metadata": meta}
    assert validate({**old, "status": {"phase": "Running"}}, old, POD) == []
    new = {**old, "metadata": {**meta, "annotations": {"a": "b"}}}
    fields = ["metadata.labels", "metadata.finalizers[0]"]
    assert [cause.field for cause in validate(new, old, POD)] == fields
