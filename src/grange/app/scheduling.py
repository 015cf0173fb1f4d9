"""The scheduler's configuration file: found, read, and refused by name."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from grange.app.settings import SettingsError
from grange.reconcile.deps import Deps
from grange.scheduler.component_config import Configured, load
from grange.scheduler.plugin_args import ConfigurationError
from grange.scheduler.service import Scheduler


def read(path: Path, option: str = "--scheduler-config") -> Configured:
    """The configuration in a file.

    Args:
        path: of the file.
        option: what named it, for messages.

    Raises:
        SettingsError: it cannot be read, or something in it is wrong; names the file and the field.
    """
    try:
        return load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise SettingsError(f"{option} {path}: {reason}") from error
    except ConfigurationError as error:
        raise SettingsError(f"{option} {path}: {error}") from error


def scheduler(path: Path, queue_policy: str) -> Callable[[Deps], Scheduler]:
    """How a scheduler of this file is made.

    Raises:
        SettingsError: as ``read``.
    """
    found = read(path)
    config = replace(found.config, queue_policy=queue_policy)
    return lambda deps: Scheduler(deps, config, profile=found.profiles)
