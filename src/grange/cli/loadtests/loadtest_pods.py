"""A component of a LoadTest as one of a TestSession: clone and build are init containers."""

from collections.abc import Mapping

from grange.api import names
from grange.api.meta import Document
from grange.api.session_components import MAIN_CONTAINER
from grange.cli.loadtests.loadtest_defaults import LoadTestDefaults
from grange.cli.loadtests.loadtest_fields import (
    InvalidLoadTest,
    LoadTestObject,
    merged_environment,
)

WORKSPACE = "/src/workspace"
NAME_MAX = 30
"""Characters of a component's name: session and component together are the name of a host."""

_VOLUME = "workspace"
_DRIVER_PORT = "driver"
_CLONE = (
    'git init -q . && git remote add origin "$CLONE_REPO" && '
    'git fetch -q origin "${CLONE_GIT_REF:-HEAD}" && git checkout -q FETCH_HEAD && '
    "git submodule update -q --init --recursive"
)


class ComponentConverter:
    """Converts the components of one LoadTest.

    Args:
        defaults: for what components leave out.
        variables: of every container that runs.

    Attributes:
        notes: what could not be converted, as lines that begin with the field.
    """

    def __init__(self, defaults: LoadTestDefaults, variables: Mapping[str, str]) -> None:
        self._defaults = defaults
        self._variables = dict(variables)
        self._taken: set[str] = set()
        self.notes: list[str] = []

    def convert(
        self, source: LoadTestObject, role: str, variables: Mapping[str, str] | None = None
    ) -> Document:
        """The component of a session.

        Args:
            source: the LoadTest's component.
            role: driver, server or client.
            variables: further ones of its containers that run.

        Raises:
            InvalidLoadTest: a field has the wrong type, or there is nothing to run.
        """
        given = source.text("language")
        language = given or ("cxx" if role == "driver" else "")  # the operator's default
        component: Document = {}
        if name := self._name(source, role):
            component["name"] = name
        if pool := source.text("pool") or self._defaults.pools.get(role, ""):
            component["pool"] = pool
        inits = [*self._clone(source.part("clone")), *self._build(source.part("build"), language)]
        used = {**self._variables, **(variables or {})}
        containers = self._run(source, role, language, used, {c["name"] for c in inits})
        if (port := _port(containers)) is not None:
            component["port"] = port
        metrics_port = source.number("metricsPort")
        if metrics_port is not None:
            self.notes.append(f"{source.path}.metricsPort: metrics are not collected from workers")
        component["template"] = _template(given, inits, containers)
        self.notes += [f"{path}: has no equal and is left out" for path in source.rest()]
        return component

    def _name(self, source: LoadTestObject, role: str) -> str:
        """A name that is unique in the session; empty to take the usual one."""
        given = source.text("name")
        if not given:
            return ""
        name = given
        if names.check_dns_label(name) is not None or len(name) > NAME_MAX:
            name = names.shortened(given, names.digest(given))[-NAME_MAX:].lstrip("-")
        if name in self._taken or (name in ("driver", "server", "client") and name != role):
            name = f"{role}-{name}"[:NAME_MAX].rstrip("-")
        if name in self._taken:
            name = f"{role}-{names.digest(source.path)}"
        self._taken.add(name)
        if name != given:
            self.notes.append(f"{source.path}.name: {given!r} becomes {name!r}")
        return name

    def _clone(self, source: LoadTestObject) -> list[Document]:
        repo, ref = source.text("repo"), source.text("gitRef")
        image = source.text("image") or self._defaults.clone_image
        self.notes += [f"{path}: has no equal and is left out" for path in source.rest()]
        if not repo:
            return []
        variables = {"CLONE_REPO": repo, **({"CLONE_GIT_REF": ref} if ref else {})}
        container = _container("clone", image, ["sh", "-c", _CLONE], [])
        container["env"] = merged_environment([], variables)
        return [container]

    def _build(self, source: LoadTestObject, language: str) -> list[Document]:
        command, arguments = source.texts("command"), source.texts("args")
        image = source.text("image") or self._defaults.images(language).build
        environment = source.documents("env")
        self.notes += [f"{path}: has no equal and is left out" for path in source.rest()]
        if not (command or arguments):
            return []
        container = _container("build", image, command, arguments)
        if environment:
            container["env"] = environment
        return [container]

    def _run(
        self,
        source: LoadTestObject,
        role: str,
        language: str,
        variables: Mapping[str, str],
        taken: set[str],
    ) -> list[Document]:
        containers = source.documents("run") or [{}]
        for at, container in enumerate(containers):
            path = f"{source.path}.run[{at}]"
            found = LoadTestObject(container, path)
            name = found.text("name") or (MAIN_CONTAINER if at == 0 else f"run-{at}")
            if at and (fault := names.check_dns_label(name)):
                raise InvalidLoadTest(f"{path}.name: {name!r}: {fault}")
            if at and name in taken:
                raise InvalidLoadTest(f"{path}.name: {name!r} is the name of another container")
            taken.add(name if at else MAIN_CONTAINER)
            container["name"] = name
            image = found.text("image") or self._image(role if at == 0 else "", language)
            if image:
                container["image"] = image
            elif not found.texts("command"):
                raise InvalidLoadTest(
                    f"{path}.image: required where no command is given; name one, or give the "
                    f"operator's file with --defaults (language {language or 'unknown'})"
                )
            given = found.documents("env")
            container["env"] = merged_environment(given, variables)
            mounts = found.documents("volumeMounts")
            container["volumeMounts"] = [*mounts, *_mounts(mounts)]
        if containers[0]["name"] != MAIN_CONTAINER:
            self.notes.append(
                f"{source.path}.run[0].name: {containers[0]['name']!r} becomes {MAIN_CONTAINER!r}, "
                "whose exit code decides"
            )
            containers[0]["name"] = MAIN_CONTAINER
        return containers

    def _image(self, role: str, language: str) -> str:
        if role == "driver" and self._defaults.driver_image:
            return self._defaults.driver_image
        return self._defaults.images(language).run


def _template(language: str, inits: list[Document], containers: list[Document]) -> Document:
    pod: Document = {"initContainers": inits} if inits else {}
    pod |= {"containers": containers, "volumes": [{"name": _VOLUME, "emptyDir": {}}]}
    labelled = language and names.check_label_value(language) is None
    return {**({"metadata": {"labels": {"language": language}}} if labelled else {}), "spec": pod}


def _container(name: str, image: str, command: list[str], arguments: list[str]) -> Document:
    container: Document = {"name": name}
    for field, value in (("image", image), ("command", command), ("args", arguments)):
        if value:
            container[field] = value
    return {**container, "workingDir": WORKSPACE, "volumeMounts": _mounts([])}


def _mounts(given: list[Document]) -> list[Document]:
    """The workspace, unless the container mounts something there."""
    if any(item.get("mountPath") == WORKSPACE for item in given):
        return []
    return [{"name": _VOLUME, "mountPath": WORKSPACE}]


def _port(containers: list[Document]) -> int | None:
    """The port that is named for the driver; None for the usual one."""
    for container in containers:
        ports = container.get("ports")
        for item in ports if isinstance(ports, list) else ():
            if isinstance(item, dict) and item.get("name") == _DRIVER_PORT:
                port = item.get("containerPort")
                return port if isinstance(port, int) and not isinstance(port, bool) else None
    return None
