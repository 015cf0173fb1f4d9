"""The ``providerConfig`` of pools of libcloud."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from libcloud.compute.providers import DRIVERS

from grange.machines.providers.config_reader import ConfigReader

_FIELDS = frozenset(
    {
        *("architecture", "arguments", "credentialsSecret", "driver", "options", "prices"),
        *("processors", "userDataArgument", "zones"),
    }
)
_SET_HERE = frozenset({"image", "location", "name", "size"})
_ARCHITECTURES = ("amd64", "arm64")
_PROCESSORS_MAX = 4096


@dataclass(frozen=True, slots=True)
class LibcloudConfig:
    """What a pool states.

    Attributes:
        driver: name of the driver, as the library has it.
        credentials_secret: name of the Secret whose keys are arguments of the driver.
        options: further arguments of the driver.
        arguments: further arguments of each creation of an instance.
        zones: where machines may be; empty: where the driver has it by default.
        prices: per hour, by type; they replace those that the driver knows.
        processors: by type, for drivers that do not know them.
        user_data_argument: argument of a creation that takes user data, for drivers that are not known here.
        architecture: of all types.
    """

    driver: str
    credentials_secret: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    zones: tuple[str, ...] = ()
    prices: Mapping[str, Decimal] = field(default_factory=dict)
    processors: Mapping[str, int] = field(default_factory=dict)
    user_data_argument: str = ""
    architecture: str = _ARCHITECTURES[0]


def read_config(given: object) -> LibcloudConfig:
    """The configuration of a pool.

    Raises:
        MisconfiguredError: it is malformed.
    """
    reader = ConfigReader(given, _FIELDS)
    driver, known = reader.text("driver"), sorted(str(name) for name in DRIVERS)
    if driver not in known:
        raise reader.wrong("driver", f"is {driver!r}", f"use one of {', '.join(known)}")
    arguments = reader.values("arguments")
    for name in arguments:
        if name in _SET_HERE:
            raise reader.wrong(f"arguments.{name}", "is set for each machine", "remove it")
    counts = ConfigReader(
        reader.values("processors"),
        frozenset(reader.values("processors")),
        "spec.providerConfig.processors",
    )
    return LibcloudConfig(
        driver=driver,
        credentials_secret=reader.text("credentialsSecret", ""),
        options=reader.values("options"),
        arguments=arguments,
        zones=reader.texts("zones"),
        prices=reader.prices("prices"),
        processors={
            name: counts.number(name, 1, 1, _PROCESSORS_MAX) for name in reader.values("processors")
        },
        user_data_argument=reader.text("userDataArgument", ""),
        architecture=reader.choice("architecture", _ARCHITECTURES),
    )
