"""The alert sinks of a process: the log and a metric always, a URL where one is given."""

from collections.abc import Iterator

from grange.alerts.alerts import AlertSink, RunningSink, SinkTools
from grange.alerts.sinks import LogSink, MetricSink, MultiSink
from grange.alerts.targets import InvalidTarget, check_url, open_sink
from grange.app.runnable import Runnable


def checked(url: str) -> str:
    """Return the URL of ``--alert-webhook``; empty means none.

    Raises:
        InvalidTarget: no sink takes it.
    """
    try:
        return check_url(url) if url else ""
    except InvalidTarget as error:
        raise InvalidTarget(f"--alert-webhook: {error}") from None


class Alerting:
    """The sinks of a process.

    Args:
        url: of a sink besides log and metric; empty for none.
        tools: for the sinks.

    Attributes:
        alert_sink: all of them.
    """

    def __init__(self, url: str, tools: SinkTools) -> None:
        sinks: list[AlertSink] = [LogSink(tools.log), MetricSink(tools.metrics)]
        if checked(url):
            sinks.append(open_sink(url, tools))
        self._running = [sink for sink in sinks if isinstance(sink, RunningSink)]
        self.alert_sink: AlertSink = MultiSink(sinks, tools.log)

    def runnables(self) -> Iterator[Runnable]:
        """The tasks of the sinks."""
        for sink in self._running:
            yield Runnable("alerts", sink.run)
