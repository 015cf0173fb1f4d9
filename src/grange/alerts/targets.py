"""Where alerts can be sent, by URL scheme: a new sink is one module and one line here."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

from grange.alerts import webhook
from grange.alerts.alerts import AlertSink, SinkTools
from grange.base.errors import GrangeError


class SinkTarget(NamedTuple):
    """What the URLs of one scheme lead to.

    Attributes:
        from_url: makes the sink.
        needs_host: whether a URL without a host is refused.
    """

    from_url: Callable[[str, SinkTools], AlertSink]
    needs_host: bool = True


TARGETS: Mapping[str, SinkTarget] = MappingProxyType(
    {
        "http": SinkTarget(webhook.from_url),
        "https": SinkTarget(webhook.from_url),
    }
)


class InvalidTarget(GrangeError):
    """The URL cannot be used; the message does not repeat it, since it may hold a secret."""


def check_url(url: str, targets: Mapping[str, SinkTarget] = TARGETS) -> str:
    """Return the URL if a sink can be made from it.

    Raises:
        InvalidTarget: it is no URL of a known scheme, or has not the host that its target needs.
    """
    try:
        parts = urlsplit(url)
        target = targets.get(parts.scheme)
        valid = target is not None and bool(parts.hostname or not target.needs_host)
    except ValueError:
        valid = False
    if not valid:
        forms = (
            f"{scheme}://{'host' if target.needs_host else ''}/path"
            for scheme, target in sorted(targets.items())
        )
        raise InvalidTarget(f"write a URL like {' or '.join(forms)}")
    return url


def open_sink(url: str, tools: SinkTools, targets: Mapping[str, SinkTarget] = TARGETS) -> AlertSink:
    """Make the sink for a URL.

    Raises:
        InvalidTarget: no sink takes the URL.
    """
    return targets[urlsplit(check_url(url, targets)).scheme].from_url(url, tools)
