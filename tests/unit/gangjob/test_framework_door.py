"""A framework is one module and two lines: an example wires its pods and is removed."""

import pytest
from tests.unit.api.jobs import complete, fields, gangjob
from tests.unit.gangjob.wired_jobs import context, model, own_env, role

from grange.api import job_frameworks
from grange.api.kinds import GANGJOB
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.frameworks import FRAMEWORKS
from grange.controllers.gangjob.frameworks.framework import Framework, JobMember, PodAdditions


def _wire(member: JobMember) -> PodAdditions:
    return PodAdditions(env={"RAY_HEAD": member.peers.short_host("head", 0)})


FRAMEWORK = Framework("Ray", _wire)


def test_framework_is_one_module_and_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/explanation/architecture.md promises for a framework."""
    written = complete(GANGJOB, gangjob(framework="Ray"))
    assert fields(GANGJOB, written) == ["spec.framework"]
    job = model(role("head"), role("worker", 2), framework="Ray")
    with pytest.raises(InvalidJob, match=r'spec\.framework: "Ray" is not known'):
        context(job)
    monkeypatch.setitem(FRAMEWORKS, FRAMEWORK.name, FRAMEWORK)
    monkeypatch.setattr(job_frameworks, "NAMES", (*job_frameworks.NAMES, FRAMEWORK.name))
    assert fields(GANGJOB, written) == []
    assert own_env(context(job), "worker", 1) == {"RAY_HEAD": "train-head-0"}


def test_every_framework_passes_admission() -> None:
    assert sorted(job_frameworks.NAMES) == sorted(name for name in FRAMEWORKS if name)
