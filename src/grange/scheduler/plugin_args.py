"""Arguments of plugins and other typed sections of a configuration file, read strictly.

A section becomes a frozen struct whose fields are named as in the file. Errors have the path of the
field. A struct's own checks raise ``ValueError`` with a text from ``refusal``, which is prefixed with
the path of the struct here.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from grange.api import names
from grange.base.errors import GrangeError
from grange.scheduler.framework import Plugin

T = TypeVar("T")
A = TypeVar("A", bound="PluginArgs")

API_VERSION = "kubescheduler.config.k8s.io/v1"

_PLACED = re.compile(r"(?P<text>.*) - at `\$(?P<path>.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")


class ConfigurationError(GrangeError):
    """A configuration cannot be used; the message starts with the path of the field."""


class ConfigSection(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """A part of a configuration."""


class PluginArgs(ConfigSection, frozen=True, kw_only=True):
    """The arguments of a plugin.

    Attributes:
        api_version, kind: as Kubernetes writes them; the kind is the plugin's name and ``Args``.
    """

    api_version: str = API_VERSION
    kind: str = ""


def refusal(field: str, message: str) -> str:
    """The text for a field of a struct, for its ``__post_init__`` to raise."""
    return f".{field}: {message}"


def within(field: str, value: int, least: int, most: int) -> None:
    """Check a number.

    Raises:
        ValueError: it is out of bounds; the text is a ``refusal``.
    """
    if not least <= value <= most:
        raise ValueError(refusal(field, f"must be {least} to {most}"))


def one_of(field: str, value: str, choices: Iterable[str]) -> None:
    """Check one of some fixed values.

    Raises:
        ValueError: it is none of the choices; the text is a ``refusal``.
    """
    listed = [*choices]
    if value not in listed:
        raise ValueError(refusal(field, f"must be {', '.join(listed[:-1])} or {listed[-1]}"))


def resource_name(name: str) -> None:
    """Check the field ``name`` of a resource.

    Raises:
        ValueError: it is missing, or no resource has such a name; the text is a ``refusal``.
    """
    fault = names.check_qualified_name(name) if name else "required"
    if fault is not None:
        raise ValueError(refusal("name", fault))


def no_resource_twice(listed: Sequence[str]) -> None:
    """Check the names in the field ``resources``.

    Raises:
        ValueError: one is there twice; the text is a ``refusal``.
    """
    for at, name in enumerate(listed):
        if name in listed[:at]:
            raise ValueError(refusal(f"resources[{at}].name", f"{name} is there twice"))


def read(document: object, kind: type[T], path: str) -> T:
    """A part of a configuration, which is at ``path``, as its struct: a ``ConfigSection`` or made of them.

    Raises:
        ConfigurationError: anything about it is wrong; the first thing found is named.
    """
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_located(str(error), path)) from error


def _located(text: str, path: str) -> str:
    placed = _PLACED.fullmatch(text)
    if placed is not None:
        text, path = placed["text"], path + placed["path"]
    for pattern, message in ((_UNKNOWN, "unknown field"), (_MISSING, "required")):
        found = pattern.fullmatch(text)
        if found is not None:
            text = refusal(found[1], message)
    message = path + text if text.startswith((".", "[")) else f"{path}: {text}"
    return message.lstrip(".: ")


def configurable(kind: type[A], make: Callable[[A], Plugin]) -> Plugin:
    """A plugin with default arguments that a configuration may replace.

    ``make`` raises ``ValueError`` with a ``refusal`` for arguments that it cannot use.
    """
    name = make(kind()).name

    def configure(document: object, path: str) -> Plugin:
        arguments = read(document, kind, path)
        if arguments.api_version != API_VERSION:
            raise ConfigurationError(f"{path}.apiVersion: must be {API_VERSION}")
        if arguments.kind not in ("", f"{name}Args"):
            raise ConfigurationError(f"{path}.kind: must be {name}Args")
        try:
            return replace(make(arguments), configure=configure)
        except ValueError as error:
            raise ConfigurationError(_located(str(error), path)) from error

    return replace(make(kind()), configure=configure)
