"""Where alerts go, from settings: the log always, a gauge always, a webhook where one is named."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import click

from grange.app.role import Role
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry
from grange.base.rng import Stream
from grange.reconcile.farm.alerts import Alerter, GaugeAlerter, LogAlerter, Several
from grange.reconcile.farm.webhook import Post, WebhookAlerter

ENVIRONMENT = "GRANGE_ALERT_WEBHOOK"

alert_webhook = click.option(
    "--alert-webhook",
    default="",
    envvar=ENVIRONMENT,
    help=f"URL that alerts are POSTed to; ${ENVIRONMENT} keeps it out of process lists.",
)


class BadWebhook(GrangeError):
    """The URL cannot be used; the message does not repeat it, for it may hold a secret."""


def checked(url: str) -> str:
    """The URL of a webhook, or nothing.

    Raises:
        BadWebhook: it is no HTTP URL.
    """
    try:
        parts = urlsplit(url)
        sound = not url or (parts.scheme in {"http", "https"} and bool(parts.hostname))
    except ValueError:
        sound = False
    if not sound:
        raise BadWebhook("--alert-webhook: write a URL like https://host/path")
    return url


class Alerting:
    """The alerters of a process, and what they need to run.

    Args:
        webhook: URL; empty for none.
        clock, rng, log, metrics: as everywhere.

    Attributes:
        alerter: give this to whoever raises alerts.
    """

    def __init__(
        self,
        webhook: str,
        *,
        clock: Clock,
        rng: Stream,
        log: Logger,
        metrics: CollectorRegistry,
    ) -> None:
        self._webhook: WebhookAlerter | None = None
        places: list[Alerter] = [LogAlerter(log), GaugeAlerter(metrics)]
        if checked(webhook):
            self._webhook = WebhookAlerter(
                post_to(webhook), clock=clock, rng=rng, log=log, metrics=metrics
            )
            places.append(self._webhook)
        self.alerter: Alerter = Several(places, log)

    def roles(self) -> Iterator[Role]:
        """What must run for alerts to arrive."""
        if self._webhook is not None:
            yield Role("alerts", self._webhook.run)


def post_to(url: str) -> Post:
    """POST JSON to a URL, each time on a connection of its own: alerts are rare.

    Redirects are not followed: they could lead to what only this machine reaches.
    """

    async def post(body: bytes) -> int:
        import aiohttp

        try:
            async with (
                aiohttp.ClientSession() as session,
                session.post(
                    url,
                    data=body,
                    headers={"Content-Type": "application/json"},
                    allow_redirects=False,
                ) as answer,
            ):
                return answer.status
        except (aiohttp.ClientError, OSError) as error:
            # The library's messages may repeat the URL, and with it a secret.
            raise ConnectionError(type(error).__name__) from None

    return post
