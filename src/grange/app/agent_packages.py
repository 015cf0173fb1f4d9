"""The package that machines of pools install, as the flags of a command name it."""

from grange.app.settings import SettingsError
from grange.machines.bootstrap.agent_package import AgentPackage
from grange.machines.providers.provider import MisconfiguredError


def agent_package(version: str, url: str) -> AgentPackage:
    """The package of ``--agent-version`` and ``--agent-url``.

    Raises:
        SettingsError: one of them is malformed.
    """
    try:
        return AgentPackage(version, url)
    except MisconfiguredError as error:
        raise SettingsError(f"--agent-version, --agent-url: {error}") from error
