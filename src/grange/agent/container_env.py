"""The environment of a container: pure, from the pod, its sources and a few facts.

Later entries win: what every container is given, ``envFrom`` in order, ``env`` in order.
``$(NAME)`` in ``env``, ``command`` and ``args`` stands for a variable defined before it; ``$$(NAME)``
stands for the text ``$(NAME)``; a name that is not defined stays as it is written.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from grange.agent import env_files
from grange.agent.cluster_dns.pod_files import hostname
from grange.agent.env_files import EnvFileError
from grange.agent.errors import IMAGE_ERROR, NotCreatableError
from grange.agent.references import Reference, Sources
from grange.api import quantity
from grange.api.kinds.pod import Container, EnvVar, EnvVarSource, Pod
from grange.api.meta import Document

_REFERENCE = re.compile(r"\$(\$|\(([^()$\s]*)\))")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


@dataclass(frozen=True, slots=True)
class EnvContext:
    """What the agent knows and the pod's object may not have yet.

    Attributes:
        pod_ip, host_ip, node_name: addresses and the node.
        allocatable: the node's, for limits that are not set.
        base: what every container starts with.
        own: paths and names that the agent gives this container.
    """

    pod_ip: str = ""
    host_ip: str = ""
    node_name: str = ""
    allocatable: Mapping[str, str] = field(default_factory=dict)
    base: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with its ``$(NAME)`` replaced, as described in the module's docstring."""

    def replaced(match: re.Match[str]) -> str:
        if match.group(1) == "$":
            return "$"
        return variables.get(match.group(2), match.group(0))

    return _REFERENCE.sub(replaced, text)


def undefined(text: str, variables: Mapping[str, str]) -> str:
    """The first variable that the text refers to and that is not defined; empty for none."""
    for match in _REFERENCE.finditer(text):
        if match.group(1) != "$" and match.group(2) not in variables:
            return match.group(2)
    return ""


def command_of(container: Container, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Program and arguments, expanded.

    Raises:
        NotCreatableError: no program is named.
    """
    check_program(container)
    words = tuple(expand(word, variables) for word in (*container.command, *container.args))
    if not words[0]:
        raise NotCreatableError(f'container "{container.name}" names no program: command[0] is ""')
    return words


def check_program(container: Container) -> None:
    """Check that the container names its program itself.

    Raises:
        NotCreatableError: its image would name it.
    """
    if not container.command:
        what = f'image "{container.image}"' if container.image else "a container without command"
        raise NotCreatableError(
            f'container "{container.name}": this node cannot run {what}: it runs pods as processes '
            "and has no image runtime; set command to a program of this machine, or run the pod on "
            "a node that has one",
            IMAGE_ERROR,
            lasting=True,
        )


def written_program(container: Container, command: tuple[str, ...]) -> str:
    """The program as the manifest has it where that is not what is executed, else nothing.

    For messages, which everybody may read: what a ``$(NAME)`` stands for may be a secret.
    """
    word = container.command[0]
    return word if word != command[0] else ""


def written_path(container: Container, env: Mapping[str, str], base: Mapping[str, str]) -> str:
    """``PATH`` as messages may have it: without what references stand for."""
    for item in reversed(container.env):
        if item.name == "PATH":
            return item.value if item.value_from is None else "(from a reference)"
    given = env.get("PATH", "")
    return given if given == base.get("PATH", "") else "(from a reference)"


def build(pod: Pod, container: Container, sources: Sources, facts: EnvContext) -> dict[str, str]:
    """The whole environment.

    Raises:
        NotCreatableError: a ConfigMap, Secret, file or key that is not optional is missing, a file is
            malformed, or a field or resource is not known.
    """
    result = {
        **facts.base,
        "HOSTNAME": hostname(pod),
        "POD_NAME": pod.metadata.name,
        "POD_NAMESPACE": pod.metadata.namespace,
        "POD_UID": pod.metadata.uid,
        "POD_IP": facts.pod_ip,
        "HOST_IP": facts.host_ip,
        "NODE_NAME": facts.node_name,
        **facts.own,
    }
    result.update(_env_from(container, sources))
    for item in container.env:
        value = _value(pod, container, item, sources, facts, result)
        if value is not None:
            result[item.name] = value
    return result


def _env_from(container: Container, sources: Sources) -> Iterable[tuple[str, str]]:
    for item in container.env_from:
        reference = Reference.of(item.config_map_ref, item.secret_ref)
        where = f'container "{container.name}": envFrom'
        for key, content in sources.content(reference, where).items():
            yield item.prefix + key, _text(content, reference, key, where)


def _value(
    pod: Pod,
    container: Container,
    item: EnvVar,
    sources: Sources,
    facts: EnvContext,
    before: Mapping[str, str],
) -> str | None:
    if item.value_from is None:
        return expand(item.value, before)
    where = f'container "{container.name}": env {item.name}'
    source = item.value_from
    if source.field_ref is not None:
        return field_value(pod, facts, str(source.field_ref.get("fieldPath", "")), where)
    if source.resource_field_ref is not None:
        return resource_value(pod, container, source.resource_field_ref, facts, where)
    if source.file_key_ref is not None:
        return _file_value(source.file_key_ref, sources, where)
    return _key_value(source, sources, where)


def _file_value(selector: Document, sources: Sources, where: str) -> str | None:
    volume, path, key = (str(selector.get(name, "")) for name in ("volumeName", "path", "key"))
    which = f'file "{path}" of volume "{volume}"'
    content = sources.files.get((volume, path))
    if content is None:
        if selector.get("optional"):
            return None
        raise NotCreatableError(f"{where}: there is no {which}; an init container has to write it")
    try:
        value = env_files.parse(content).get(key)
    except EnvFileError as error:
        raise NotCreatableError(f"{where}: {which} cannot be read: {error}") from error
    if value is None and not selector.get("optional"):
        raise NotCreatableError(f'{where}: there is no variable "{key}" in {which}')
    return value


def _key_value(source: EnvVarSource, sources: Sources, where: str) -> str | None:
    selector = source.config_map_key_ref or source.secret_key_ref
    if selector is None:
        raise NotCreatableError(f"{where}: valueFrom has no source that is known here")
    reference = Reference.of(source.config_map_key_ref, source.secret_key_ref)
    key = str(selector.get("key", ""))
    content = sources.content(reference, where).get(key)
    if content is not None:
        return _text(content, reference, key, where)
    if reference.optional:
        return None
    raise NotCreatableError(f'{where}: there is no key "{key}" in {reference}')


def _text(content: bytes, reference: Reference, key: str, where: str) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise NotCreatableError(
            f'{where}: key "{key}" of {reference} is not text; mount it as a file'
        ) from error
    if "\0" in text:
        raise NotCreatableError(
            f'{where}: key "{key}" of {reference} holds a NUL byte; mount it as a file'
        )
    return text


def field_value(pod: Pod, facts: EnvContext, path: str, where: str) -> str:
    """A field of the pod as text (``fieldRef``).

    Raises:
        NotCreatableError: the field cannot be referred to.
    """
    if match := _KEYED.fullmatch(path):
        labels = match.group(1) == "labels"
        return (pod.metadata.labels if labels else pod.metadata.annotations).get(match.group(2), "")
    fields = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "metadata.labels": _lines(pod.metadata.labels),
        "metadata.annotations": _lines(pod.metadata.annotations),
        "spec.nodeName": facts.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.podIP": facts.pod_ip,
        "status.podIPs": facts.pod_ip,
        "status.hostIP": facts.host_ip,
        "status.hostIPs": facts.host_ip,
    }
    if path not in fields:
        raise NotCreatableError(
            f'{where}: fieldPath "{path}" is not supported; there are '
            f"{', '.join(fields)} and metadata.labels['key'], metadata.annotations['key']"
        )
    return fields[path]


def _lines(mapping: Mapping[str, str]) -> str:
    """Labels or annotations as the downward API writes them: sorted ``key="value"`` lines."""
    escaped = {
        key: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for key, value in mapping.items()
    }
    return "\n".join(f'{key}="{escaped[key]}"' for key in sorted(escaped))


def resource_value(
    pod: Pod, container: Container, selector: Document, facts: EnvContext, where: str
) -> str:
    """A request or limit as a number (``resourceFieldRef``), in units of the divisor, rounded up.

    A limit that is not set is what the node can give at most.

    Raises:
        NotCreatableError: no such container or resource.
    """
    named = str(selector.get("containerName") or container.name)
    everyone = [*pod.spec.containers, *pod.spec.init_containers]
    target = next((item for item in everyone if item.name == named), None)
    kind, _, resource = str(selector.get("resource", "")).partition(".")
    if target is None or kind not in {"limits", "requests"} or not resource:
        raise NotCreatableError(
            f'{where}: resourceFieldRef to "{selector.get("resource")}" of container "{named}": '
            "name a container of this pod and limits.<resource> or requests.<resource>"
        )
    limits = target.resources.limits.get(resource, facts.allocatable.get(resource, "0"))
    amount = limits if kind == "limits" else target.resources.requests.get(resource, "0")
    try:
        divisor = quantity.parse(selector.get("divisor") or "1") or quantity.parse("1")
        value = quantity.parse(amount) / divisor
    except quantity.QuantityError as error:
        raise NotCreatableError(f"{where}: {error}") from error
    return str(-(-value.numerator // value.denominator))
