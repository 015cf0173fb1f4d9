"""Cloud-config of a pool: merged with files and commands, or run where there is no cloud-init."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from grange.api.validation.nodepools import USER_DATA_MAX
from grange.machines.providers.provider import MisconfiguredError

HEADER = "#cloud-config"
_TEMPLATE_HEADER = "## template:"
_FIELD = "spec.userData"


@dataclass(frozen=True, slots=True)
class BootFile:
    """A file that is written at the first start.

    Attributes:
        path: where.
        content: what; may hold a token.
        permissions: of the file, octal.
    """

    path: str
    content: str = field(repr=False)
    permissions: str = "0600"


def parse_cloud_config(text: str) -> dict[str, Any]:
    """The keys of a cloud-config; none of an empty text.

    Raises:
        MisconfiguredError: it is no cloud-config, or keys that are merged have another type.
    """
    first = text.lstrip().partition("\n")[0]
    if first.startswith(("#!", "Content-Type:", "#include", "#part-handler", _TEMPLATE_HEADER)):
        raise MisconfiguredError(
            f"{_FIELD}: is no cloud-config; use one, or set spec.bootstrap to UserData"
        )
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise MisconfiguredError(f"{_FIELD}: is not YAML: {_located(error)}; repair it") from error
    except (ValueError, RecursionError) as error:  # a date such as 2026-99-99, or deep nesting
        raise MisconfiguredError(f"{_FIELD}: is not YAML: {error}; repair it") from error
    config = {} if config is None else config
    if not isinstance(config, dict):
        raise MisconfiguredError(f"{_FIELD}: is no mapping of keys; use a cloud-config")
    for key in ("write_files", "runcmd"):
        if not isinstance(config.setdefault(key, []), list):
            raise MisconfiguredError(f"{_FIELD}: {key} is no list; use a list")
    for index, entry in enumerate(config["write_files"]):
        if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
            raise MisconfiguredError(f"{_FIELD}: write_files[{index}] has no path; add one")
    return config


def merge_cloud_config(text: str, files: Sequence[BootFile], commands: Sequence[str]) -> str:
    """The user's cloud-config with more files and commands, which come after the user's.

    Files are in the order of their paths, so equal input makes equal user data.

    Raises:
        MisconfiguredError: see ``parse_cloud_config``; or a file is there twice, or the result is
            too long.
    """
    config = parse_cloud_config(text)
    ours = {file.path for file in files}
    for index, entry in enumerate(config["write_files"]):
        if entry["path"] in ours:
            path = entry["path"]
            raise MisconfiguredError(
                f"{_FIELD}: write_files[{index}]: {path} is written by Grange; use another path"
            )
    config["write_files"] = [
        *config["write_files"],
        *(
            {"path": file.path, "permissions": file.permissions, "content": file.content}
            for file in sorted(files, key=lambda file: file.path)
        ),
    ]
    config["runcmd"] = [*config["runcmd"], *([command] for command in commands)]
    merged = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=4096)
    return checked_size(f"{HEADER}\n{merged}")


def cloud_config_script(text: str) -> str:
    """A shell script with the files and commands of a cloud-config, for hosts without cloud-init.

    Raises:
        MisconfiguredError: it is no cloud-config, or has keys beyond ``write_files`` and ``runcmd``.
    """
    config = parse_cloud_config(text)
    for key in config:
        if key not in {"write_files", "runcmd"}:
            raise MisconfiguredError(
                f"{_FIELD}: {key} needs cloud-init, which is not used here; remove it"
            )
    lines = ["#!/bin/sh", "set -eu"]
    for index, entry in enumerate(config["write_files"]):
        lines += _write(entry, index)
    for index, command in enumerate(config["runcmd"]):
        if isinstance(command, str):
            lines.append(shlex.join(["sh", "-c", command]))
        elif isinstance(command, list) and command and all(isinstance(w, str) for w in command):
            lines.append(shlex.join(command))
        else:
            raise MisconfiguredError(
                f"{_FIELD}: runcmd[{index}] is no command; use a string or a list of strings"
            )
    return "\n".join(lines) + "\n"


def checked_size(user_data: str) -> str:
    """The user data, if providers take so much.

    Raises:
        MisconfiguredError: it is too long.
    """
    size = len(user_data.encode(errors="replace"))
    if size > USER_DATA_MAX:
        raise MisconfiguredError(
            f"{_FIELD}: {size} bytes with what the agent needs, more than {USER_DATA_MAX}; shorten it"
        )
    return user_data


def _write(entry: dict[str, Any], index: int) -> list[str]:
    unknown = sorted({*entry} - {"path", "permissions", "content"})
    if unknown:
        raise MisconfiguredError(
            f"{_FIELD}: write_files[{index}].{unknown[0]} needs cloud-init; remove it"
        )
    content, permissions = entry.get("content", ""), entry.get("permissions", "0644")
    mode = f"{permissions:o}" if isinstance(permissions, int) else str(permissions)
    if not isinstance(content, str) or not (mode.isdecimal() and len(mode) <= 4):
        raise MisconfiguredError(
            f"{_FIELD}: write_files[{index}]: content is no text or permissions are not octal; "
            "change it"
        )
    path = shlex.quote(entry["path"])
    return [
        f'mkdir -p "$(dirname {path})"',
        # Made before it is filled, so that no other user can read it meanwhile.
        f"rm -f {path}; (umask 077; printf %s {shlex.quote(content)} >{path})",
        f"chmod {mode} {path}",
    ]


def _located(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the text around it, which may be secret."""
    problem = getattr(error, "problem", None) or "malformed"
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}: {problem}" if mark is not None else str(problem)
