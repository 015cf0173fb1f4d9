"""What the errors of drivers mean. Drivers raise whatever they like, so statuses and texts of answers count."""

import re
from collections.abc import Collection
from http import HTTPStatus

from libcloud.common.exceptions import BaseHTTPError, RateLimitReachedError
from libcloud.common.types import (
    InvalidCredsError,
    LibcloudError,
    ProviderError as DriverError,
)
from requests.exceptions import RequestException

from grange.machines.providers.provider import (
    CapacityError,
    InstanceGoneError,
    MisconfiguredError,
    ProviderError,
    ThrottledError,
)

CREATE, DESTROY, CONNECT = "create_node", "destroy_node", "connect"
"""Calls whose errors mean more than those of others."""

_QUOTA = re.compile(
    r"quota|exceeds? .*limit|limit (has been )?(exceeded|reached)|limit of ", re.IGNORECASE
)
_SHORTAGE = re.compile(
    r"no valid host|(insufficient|not enough|no available|out of) (\w+ )?(capacity|resources|hosts|stock)"
    r"|sold out|currently unavailable|(not |un)available in (this|the|that|your)\b",
    re.IGNORECASE,
)
_REQUEST_ID = re.compile(r" ?\(?request[ -]?id:? ?[\w-]+\)?", re.IGNORECASE)  # differs each time
_NETWORK = re.compile(r"\bnetworks?\b", re.IGNORECASE)
_THROTTLED = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
_REFUSED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_WAIT_S = 2.0
_MESSAGE_MAX = 400


def translate(
    driver: str, call: str, error: Exception, *, secrets: Collection[str] = ()
) -> ProviderError:
    """The error of a call of a driver as the protocol has it.

    Args:
        driver: name, for the message.
        call: the method.
        error: what it raised.
        secrets: that are removed from the message.
    """
    what = f"libcloud {driver} {call}: {_shown(error, secrets)}"
    if isinstance(error, RequestException | OSError):
        return ProviderError(f"{what}; it is tried again")
    status = _status(error)
    if isinstance(error, RateLimitReachedError) or status in _THROTTLED:
        return ThrottledError(f"{what}; wait", retry_after_s=_retry_after_s(error))
    text = str(error)
    if call == CREATE and _QUOTA.search(text):
        remedy = "have the limit of the account raised"
        return CapacityError(f"{what}; {remedy}", whole_type=True, quota=True)
    if call == CREATE and _SHORTAGE.search(text):
        return CapacityError(f"{what}; wait or allow other types and zones")
    if isinstance(error, InvalidCredsError) or status in _REFUSED:
        return MisconfiguredError(f"{what}; change the Secret of spec.providerConfig")
    if call == DESTROY and status == HTTPStatus.NOT_FOUND:
        return InstanceGoneError(f"{what}; order another")
    if _is_of_the_pool(call, error, status):
        return MisconfiguredError(f"{what}; change the pool")
    return ProviderError(f"{what}; it is tried again")


def _is_of_the_pool(call: str, error: Exception, status: int) -> bool:
    """Whether the call fails until the pool is changed."""
    if isinstance(error, NotImplementedError):
        return True
    if call == CONNECT:  # wrong arguments have any class
        return status < HTTPStatus.INTERNAL_SERVER_ERROR
    if status == HTTPStatus.CONFLICT:  # else something is there already, or changes
        return _NETWORK.search(str(error)) is not None
    if status == HTTPStatus.REQUEST_TIMEOUT:
        return False
    return HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR


def _status(error: Exception) -> int:
    """The status of the answer; 0: there was none, or it is not known."""
    if isinstance(error, BaseHTTPError):
        found = error.code
    elif isinstance(error, DriverError):
        found = error.http_code
    else:
        return 0
    try:
        return int(found)
    except (TypeError, ValueError):
        return 0


def _retry_after_s(error: Exception) -> float:
    try:
        return max(_WAIT_S, float((getattr(error, "headers", None) or {})["retry-after"]))
    except (KeyError, TypeError, ValueError):
        return _WAIT_S


def _shown(error: Exception, secrets: Collection[str]) -> str:
    text = str(error.value) if isinstance(error, LibcloudError) else str(error)
    for secret in secrets:
        text = text.replace(secret, "…")
    text = _REQUEST_ID.sub("", " ".join(text.split()))[:_MESSAGE_MAX].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
