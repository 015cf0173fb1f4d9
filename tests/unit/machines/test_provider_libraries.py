"""Libraries of providers are extras: a process without their pools does not import them."""

import subprocess
import sys

import pytest

from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines import providers
from grange.machines.providers import ProviderTools, create_provider
from grange.machines.providers.provider import MisconfiguredError

LIBRARIES = {
    "ec2": ("boto3", "botocore"),
    "libcloud": ("libcloud", "requests"),
    "ssh": ("asyncssh",),
}

_CHECK = """
import sys
import grange.app.controllers, grange.app.controlplane
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers import ProviderTools, create_provider
create_provider("simulated", {}, ProviderTools("c", LoopClock(), Stream(1), Logger("test")))
print(*sorted(set(sys.argv[1:]) & set(sys.modules)))
"""


def test_no_library_is_imported_without_its_pool() -> None:
    """That nothing but its provider imports a library is checked with the layers."""
    libraries = [name for names in LIBRARIES.values() for name in names]
    command = [sys.executable, "-c", _CHECK, *libraries]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert found.stdout.split() == []


def test_each_library_has_an_extra() -> None:
    assert providers.EXTRAS.keys() == LIBRARIES.keys()
    assert providers.EXTRAS.keys() <= providers.PROVIDERS.keys()


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grange.machines.providers.ec2", None)
    tools = ProviderTools("ours", LoopClock(), Stream(1), Logger("test"))
    with pytest.raises(
        MisconfiguredError, match=r"^spec\.provider: .*; install grange\[aws\] where "
    ):
        create_provider("ec2", {"region": "eu-west-1"}, tools)
