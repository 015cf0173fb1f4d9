"""What a program asks of a job, and the GangJob that it becomes."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict

from grange.api.kinds import GANGJOB
from grange.api.meta import Document
from grange.api.patch import merge_patch
from grange.base.errors import GrangeError
from grange.jobs import portable_function

Work: TypeAlias = Callable[..., object] | Sequence[str]
"""A function made by ``def``, or the words of a command."""

CONTAINER = "main"
ROLE = "worker"
DAY_S = 86_400
FUNCTION = "grange.dev/function"
"""Annotation of pods whose program is a function; the value is its name."""
_PREFIX_CHARS = 40  # names of pods and Services have 63 characters, with suffix, role and index
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """One role of a job.

    Attributes:
        replicas: how many members it has.
        work: a function or a command; None: that of the job.
        args: of the function; None: those of the job.
        kwargs: keyword arguments of the function; None: those of the job.
        leader: its outcome is the job's, and its member 0 has the result.
        completes: false for servers, which are ended with the job.
        depends_on: roles that have to be ``Ready`` or ``Complete`` first.
    """

    replicas: int = 1
    work: Work | None = None
    args: Sequence[object] | None = None
    kwargs: Mapping[str, object] | None = None
    leader: bool = False
    completes: bool = True
    depends_on: Mapping[str, str] = field(default_factory=dict)


class RunOptions(TypedDict, total=False):
    """Keyword arguments of ``run`` and ``start``.

    Attributes:
        args: of the function.
        kwargs: keyword arguments of the function.
        name: of the job; by default that of the function or program with a random suffix.
        namespace: of the job; ``default`` by default.
        image: of the containers; without one the members are processes that need none.
        python: interpreter of functions; by default this one, and ``python3`` in an image.
        env: variables of the members.
        resources: requests of each member, such as ``{"cpu": "1", "memory": "2Gi"}``.
        framework: Generic, TensorFlow, PyTorch, MPI, JAX or XGBoost: which variables members get.
        retries: so often all members start again when one has failed; 0 by default.
        queue: whose quota the job uses.
        deadline_s: the job fails after so many seconds.
        keep_s: the job is deleted so many seconds after its end; a day by default.
        overrides: a merge patch (RFC 7386) on the GangJob, for all other fields.
    """

    args: Sequence[object]
    kwargs: Mapping[str, object]
    name: str
    namespace: str
    image: str
    python: str
    env: Mapping[str, str]
    resources: Mapping[str, str]
    framework: str
    retries: int
    queue: str
    deadline_s: int
    keep_s: int
    overrides: Document


class InvalidRun(GrangeError):
    """The arguments of ``run`` contradict each other."""


def job_document(
    work: Work | None,
    replicas: int | None,
    roles: Mapping[str, int | RoleOptions] | None,
    options: RunOptions,
) -> Document:
    """The GangJob.

    Raises:
        FunctionNotPortable: a function or an argument cannot be sent.
        InvalidRun: the arguments contradict each other.
    """
    if roles is not None and replicas is not None:
        raise InvalidRun("replicas: not together with roles; give each role its replicas")
    given = {ROLE: replicas if replicas is not None else 1} if roles is None else roles
    wanted = {
        name: RoleOptions(item) if isinstance(item, int) else item for name, item in given.items()
    }
    specs = {name: _role(name, role, work, options) for name, role in wanted.items()}
    policy: Document = {"ttlSecondsAfterFinished": options.get("keep_s", DAY_S)}
    if "deadline_s" in options:
        policy["activeDeadlineSeconds"] = options["deadline_s"]
    if options.get("queue"):
        policy["schedulingPolicy"] = {"queue": options["queue"]}
    first = next((item.work for item in wanted.values() if item.work is not None), work)
    document: Document = {
        "apiVersion": f"{GANGJOB.group}/{GANGJOB.version}",
        "kind": GANGJOB.kind,
        "metadata": _names(first if work is None else work, options),
        "spec": {
            "framework": options.get("framework", "Generic"),
            "replicaSpecs": specs,
            "runPolicy": policy,
        },
    }
    if options.get("retries"):
        document["spec"]["failurePolicy"] = {"maxRestarts": options["retries"]}
    patched: Document = merge_patch.apply(document, options.get("overrides", {}))
    return patched


def _names(work: Work | None, options: RunOptions) -> Document:
    namespace = {"namespace": options.get("namespace", "default")}
    if options.get("name"):
        return {"name": options["name"], **namespace}
    word = str(getattr(work, "__name__", "job")) if callable(work) else _program(work)
    label = _NOT_IN_NAMES.sub("-", word.lower())[:_PREFIX_CHARS].strip("-") or "job"
    if not label[0].isalpha():
        label = f"job-{label}"
    return {"generateName": f"{label}-", **namespace}


def _program(words: Sequence[str] | None) -> str:
    return words[0].rpartition("/")[2] if words else "job"


def _role(name: str, role: RoleOptions, work: Work | None, options: RunOptions) -> Document:
    chosen = work if role.work is None else role.work
    if chosen is None:
        raise InvalidRun(f"roles[{name}].work: required; give the role or the job a function")
    container: Document = {
        "name": CONTAINER,
        "command": list(_command(chosen, role, options)),
        **({"image": options["image"]} if options.get("image") else {}),
        **(
            {"resources": {"requests": dict(options["resources"])}}
            if "resources" in options
            else {}
        ),
    }
    if options.get("env"):
        container["env"] = [{"name": key, "value": text} for key, text in options["env"].items()]
    template: Document = {"spec": {"containers": [container]}}
    if callable(chosen):
        template["metadata"] = {"annotations": {FUNCTION: chosen.__name__}}
    spec: Document = {
        "replicas": role.replicas,
        "restartPolicy": "Never",
        "template": template,
    }
    flags: dict[str, Any] = {"leader": role.leader, "completes": role.completes}
    defaults = {"leader": False, "completes": True}
    spec |= {key: value for key, value in flags.items() if value != defaults[key]}
    if role.depends_on:
        spec["dependsOn"] = [
            {"role": other, "condition": condition} for other, condition in role.depends_on.items()
        ]
    return spec


def _command(chosen: Work, role: RoleOptions, options: RunOptions) -> Sequence[str]:
    if isinstance(chosen, str | bytes):
        raise InvalidRun(f"work {chosen!r}: a text; give the words of a command as a list")
    if callable(chosen):
        python = options.get("python") or ("python3" if options.get("image") else sys.executable)
        args = options.get("args", ()) if role.args is None else role.args
        kwargs = options.get("kwargs", {}) if role.kwargs is None else role.kwargs
        return portable_function.command(chosen, args, kwargs, python=python)
    if not chosen or not all(isinstance(word, str) for word in chosen):
        raise InvalidRun(f"work {chosen!r}: no command; give its words as text")
    return chosen
