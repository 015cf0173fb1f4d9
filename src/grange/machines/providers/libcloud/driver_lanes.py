"""Drivers in threads: a driver keeps the state of its connection, so each thread has one to itself."""

import zlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from libcloud.common.base import Connection
from libcloud.compute.providers import get_driver

from grange.base.offload import Threads
from grange.machines.providers import ReadSecret
from grange.machines.providers.libcloud.libcloud_config import LibcloudConfig
from grange.machines.providers.libcloud.libcloud_errors import CONNECT, translate
from grange.machines.providers.provider import MisconfiguredError

T = TypeVar("T")

_LANES = 4
_SECRET_MIN = 4
"""Shorter values are words such as ``1`` that are no secrets."""

MakeDriver = Callable[[Mapping[str, Any]], Any]
"""Makes a driver of its arguments."""


class DriverCalls:
    """The calls of one driver, with the errors of the protocol.

    Args:
        name: of the driver.
        driver: of the library.
        secrets: that no error shows.

    Attributes:
        driver: of the library.
    """

    def __init__(self, name: str, driver: Any, secrets: Collection[str]) -> None:
        self.driver = driver
        self._name, self._secrets = name, secrets

    def call(self, method: str, *args: Any, **arguments: Any) -> Any:
        """Call, blocking.

        Args:
            method: of the driver.
            args: of the call.
            arguments: of the call.

        Raises:
            ProviderError: see ``libcloud_errors``.
        """
        try:
            return getattr(self.driver, method)(*args, **arguments)
        except Exception as error:  # drivers raise whatever they like
            raise translate(self._name, method, error, secrets=self._secrets) from error

    def close(self) -> None:
        """End the connections."""
        found = [one for one in vars(self.driver).values() if isinstance(one, Connection)]
        found += [one for own in found if isinstance(one := getattr(own, "_osa", None), Connection)]
        for one in found:
            session = getattr(one.connection, "session", None)
            if session is not None:
                session.close()


class DriverLanes:
    """Threads, each with a driver.

    Args:
        config: of the pool.
        read_secret: reads the credentials.
        endpoint: URL that replaces the one of the cloud; empty: none does.
        make: makes a driver; None: the library does.
        defaults: arguments of the driver that the pool may replace.
    """

    def __init__(
        self,
        config: LibcloudConfig,
        read_secret: ReadSecret,
        *,
        endpoint: str = "",
        make: MakeDriver | None = None,
        defaults: Mapping[str, Any],
    ) -> None:
        self._config, self._read_secret = config, read_secret
        self._defaults = defaults
        self._endpoint, self._make = endpoint, make or _maker(config.driver)
        self._threads = [Threads(f"libcloud-{index}") for index in range(_LANES)]
        self._open: dict[int, tuple[Mapping[str, str], DriverCalls]] = {}
        self._credentials: Mapping[str, str] | None = None

    async def run(self, key: str, work: Callable[[DriverCalls], T]) -> T:
        """Run in the lane of a key, after what was asked for there before.

        Raises:
            ProviderError: there is no driver, or the work raises it.
        """
        if self._credentials is None:
            self._credentials = await self._read()
        credentials, lane = self._credentials, zlib.crc32(key.encode()) % _LANES
        try:
            return await self._threads[lane].run(lambda: work(self._calls(lane, credentials)))
        except MisconfiguredError:
            self._credentials = None  # the Secret may have been changed meanwhile
            raise

    def close(self) -> None:
        """End threads and connections."""
        for threads in self._threads:
            threads.close()
        for _, calls in self._open.values():
            calls.close()

    async def _read(self) -> Mapping[str, str]:
        name = self._config.credentials_secret
        if not name:
            return {}
        try:
            return {key: value.decode() for key, value in (await self._read_secret(name)).items()}
        except UnicodeDecodeError as error:
            raise MisconfiguredError(f"secret {name}: is no text; replace it") from error

    def _calls(self, lane: int, credentials: Mapping[str, str]) -> DriverCalls:
        """The driver of a lane, made again when the credentials have changed; in its thread."""
        known = self._open.get(lane)
        if known is not None and known[0] == credentials:
            return known[1]
        secrets = [one for one in credentials.values() if len(one) >= _SECRET_MIN]
        name = self._config.driver
        try:
            driver = self._make({**self._defaults, **self._config.options, **credentials})
        except Exception as error:  # drivers raise whatever they like
            raise translate(name, CONNECT, error, secrets=secrets) from error
        if self._endpoint:
            found, connection = urlsplit(self._endpoint), driver.connection
            connection.host, connection.port = found.hostname, found.port
            connection.secure = int(found.scheme == "https")
            connection.connect()
        if known is not None:
            known[1].close()
        calls = DriverCalls(name, driver, secrets)
        self._open[lane] = credentials, calls
        return calls


def _maker(name: str) -> MakeDriver:
    return lambda arguments: get_driver(name)(**arguments)
