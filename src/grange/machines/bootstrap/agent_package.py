"""Where a machine gets the agent from."""

import re
from dataclasses import dataclass

from grange.machines.providers.provider import MisconfiguredError

LATEST = "latest"
_NUMBERS = re.compile(r"v?(\d+\.\d+[A-Za-z0-9.+-]*)", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*", re.ASCII)
_URL = re.compile(r"(https?|file)://[A-Za-z0-9._~:/?#\[\]@!&*+,;=%{}-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class AgentPackage:
    """The package that is installed on machines.

    Attributes:
        version: such as ``1.2.0`` or ``v1.2.0``, or another name that ``url`` knows; empty or
            ``latest``: the newest.
        url: of the package; ``{version}`` stands for ``1.2.0`` and ``{tag}`` for ``v1.2.0``. Empty:
            the package index that the machine uses.
    """

    version: str = ""
    url: str = ""

    def __post_init__(self) -> None:
        """Check the form.

        Raises:
            MisconfiguredError: it is no version, or no URL.
        """
        if self.version and not _VERSION.fullmatch(self.version):
            raise MisconfiguredError(f"agent version {self.version!r}: use one such as 1.2.0")
        if self.url and not _URL.fullmatch(self.url):
            raise MisconfiguredError(
                f"agent URL {self.url!r}: use one such as https://HOST/FILE.whl"
            )
        if not self.version and "{" in self.url:
            raise MisconfiguredError(f"agent URL {self.url!r}: has no version to fill in; give one")

    @property
    def requirement(self) -> str:
        """What pip installs."""
        number = release_number(self.version)
        if self.url:
            url = self.url.replace("{version}", number).replace("{tag}", release_tag(self.version))
            return f"grange @ {url}"
        return "grange" if number in {"", LATEST} else f"grange=={number}"


def release_tag(version: str) -> str:
    """The version as tags of releases have it: ``1.2.0`` becomes ``v1.2.0``.

    Names such as ``latest`` or ``dev``, and numbers without a dot, stay as they are.
    """
    found = _NUMBERS.fullmatch(version)
    return f"v{found[1]}" if found else version


def release_number(version: str) -> str:
    """The version as packages have it: ``v1.2.0`` becomes ``1.2.0``; others stay as they are."""
    found = _NUMBERS.fullmatch(version)
    return found[1] if found else version
