"""Where alerts can be sent, by URL scheme: a new sink is one module and one line here."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from grange.alerts import webhook
from grange.alerts.alerts import AlertSink, SinkTools
from grange.base.errors import GrangeError

FromURL = Callable[[str, SinkTools], AlertSink]

TARGETS: Mapping[str, FromURL] = MappingProxyType(
    {
        "http": webhook.from_url,
        "https": webhook.from_url,
    }
)


class InvalidTarget(GrangeError):
    """The URL cannot be used; the message does not repeat it, since it may hold a secret."""


def check_url(url: str, targets: Mapping[str, FromURL] = TARGETS) -> str:
    """Return the URL if a sink can be made from it.

    Raises:
        InvalidTarget: it is no URL of a known scheme with a host.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in targets and bool(parts.hostname)
    except ValueError:
        valid = False
    if not valid:
        schemes = ", ".join(sorted(targets))
        raise InvalidTarget(f"write a URL like https://host/path; schemes: {schemes}")
    return url


def open_sink(url: str, tools: SinkTools, targets: Mapping[str, FromURL] = TARGETS) -> AlertSink:
    """Make the sink for a URL.

    Raises:
        InvalidTarget: no sink takes the URL.
    """
    return targets[urlsplit(check_url(url, targets)).scheme](url, tools)
