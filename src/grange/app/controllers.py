"""``grange controllers``: controllers and scheduler for an API server that runs elsewhere."""

import asyncio
import contextlib
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import click

from grange.alerts.alerts import SinkTools
from grange.alerts.targets import InvalidTarget
from grange.app import flags, gc_tuning
from grange.app.agent_packages import agent_package
from grange.app.alerting import Alerting
from grange.app.settings import (
    ListenAddress,
    ListenAddressType,
    Settings,
    SettingsError,
    check_queue_policy,
)
from grange.base import log, metrics, supervision
from grange.base.clock import Clock, LoopClock
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.client.access import Access
from grange.client.client import Client
from grange.machines.bootstrap.agent_package import AgentPackage

_NAME_LIMIT = 40


@click.command(
    cls=Command,
    examples=(
        "grange controllers --kubeconfig cluster.yaml",
        "grange controllers --only replication,scheduler --scheduler-name grange",
    ),
)
@click.option("--kubeconfig", type=click.Path(path_type=Path), default=None, help="Which cluster.")
@click.option("--context", default="", help="Context of the kubeconfig.")
@click.option("--only", default="", help="Controllers to run, by name; all by default.")
@click.option("--selector", default="", help="Labels of the ReplicationControllers to work on.")
@click.option(
    "--scheduler-name",
    "schedulers",
    multiple=True,
    help="Pods with this schedulerName are the scheduler's, may be repeated; by default grange and "
    "default-scheduler. A cluster that has a scheduler keeps the latter for it.",
)
@click.option("--member", default="", help="Name in the farm; made from the host's by default.")
@click.option(
    "--metrics-listen",
    type=ListenAddressType(),
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Address of /metrics, /livez and /readyz, over HTTP without credentials; port 0 takes a free "
    "one.",
)
@click.option(
    "--evidence-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIR",
    help="Keep the logs, artifacts and figures of TestSessions here, and serve them; nowhere by default.",
)
@click.option(
    "--session-listen",
    type=ListenAddressType(),
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the session service, which the pods of sessions must reach; port 0 takes that of the "
    "last time or a free one.",
)
@flags.options(
    Settings,
    "queue_policy",
    "agent_version",
    "agent_url",
    "alert_webhook",
    "log_level",
    "log_json",
)
@click.pass_obj
def command(  # noqa: PLR0913  click hands every option over by name
    env: Environment,
    kubeconfig: Path | None,
    context: str,
    only: str,
    selector: str,
    schedulers: tuple[str, ...],
    member: str,
    *,
    metrics_listen: ListenAddress,
    evidence_dir: Path | None,
    session_listen: ListenAddress,
    queue_policy: str,
    agent_version: str,
    agent_url: str,
    alert_webhook: str,
    log_level: str,
    log_json: bool,
) -> None:
    """Run controllers and scheduler against a cluster; many share the work as a farm."""
    with _usage_errors():
        check_queue_policy(queue_policy)
        package = agent_package(agent_version, agent_url)
    log.configure(level=log_level, json_lines=log_json)
    rng = Stream.from_system()
    access = env.access(kubeconfig, context)
    names = frozenset(filter(None, only.split(",")))
    if session_listen.host in {"0.0.0.0", "::", ""}:  # noqa: S104  refused
        raise click.UsageError(
            f"--session-listen {session_listen}: components could not use it as an address; give one "
            "that pods reach"
        )
    import uvloop

    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(
            _serve(
                access,
                member or member_name(socket.gethostname(), os.getpid(), rng),
                names,
                selector=selector,
                schedulers=frozenset(schedulers),
                queue_policy=queue_policy,
                metrics_listen=metrics_listen,
                evidence=(evidence_dir, session_listen),
                package=package,
                webhook=alert_webhook,
                rng=rng,
            )
        )


def member_name(host: str, pid: int, rng: Stream) -> str:
    """A name that no other process has, from where this one runs."""
    words = re.sub(r"[^a-z0-9]+", "-", host.lower()).strip("-")[:_NAME_LIMIT].strip("-")
    return f"{words or 'host'}-{pid}-{rng.suffix(4)}"


async def _serve(  # noqa: PLR0913  one for each option
    access: Access,
    member: str,
    names: frozenset[str],
    *,
    selector: str,
    schedulers: frozenset[str],
    queue_policy: str,
    metrics_listen: ListenAddress,
    evidence: tuple[Path | None, ListenAddress],
    package: AgentPackage,
    webhook: str,
    rng: Stream,
) -> None:
    """Take part until SIGINT or SIGTERM."""
    from grange.app import evidence_service, machine_role
    from grange.app.manager import NAMES, Manager, scheduler_for
    from grange.app.metrics_server import MetricsServer, serve_metrics
    from grange.app.runnable import Runnable
    from grange.client.transports.http_transport import HTTP
    from grange.controllers.sharded import SHARDED
    from grange.reconcile.deps import Deps
    from grange.reconcile.farm.config import FarmConfig
    from grange.reconcile.informer import InformerFactory

    clock: Clock = LoopClock()
    logger = log.Logger("controllers").bind(member=member)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # else Ctrl-C is meant for others
        loop.add_signal_handler(signal.SIGINT, stop.set)
    transport = HTTP.from_access(access, clock=clock)
    client = Client(transport, clock=clock)
    registry = metrics.registry()
    informers = InformerFactory(
        client, clock=clock, rng=rng.fork("informers"), log=logger, metrics=registry
    )

    def deps(role: str) -> Deps:
        return Deps(client, informers, clock, rng.fork(role), logger.bind(role=role), registry)

    async with AsyncExitStack() as stack:
        stack.push_async_callback(transport.close)
        kept: evidence_service.EvidenceService | None = None
        further: tuple[Runnable, ...] = ()
        directory, listen = evidence
        if directory is not None:
            kept, renewal = await evidence_service.of_directory(
                directory, listen.host, listen.port, deps("evidence")
            )
            await stack.enter_async_context(kept)
            further = kept.runnable(), renewal
        with _usage_errors():
            alerting = Alerting(webhook, SinkTools(clock, rng.fork("alerts"), logger, registry))
            manager = Manager(
                FarmConfig(member=member),
                deps,
                names or frozenset(NAMES),
                scheduler=scheduler_for(schedulers, queue_policy),
                machines=machine_role.elsewhere(access.server, access.ca_pem, package),
                selector=selector,
                alert_sink=alerting.alert_sink,
                sharded=SHARDED if kept is None else kept.sharded(),
            )
        ready = {
            "session": lambda: "" if manager.member.session.current else "no session in the farm"
        }
        url = await stack.enter_async_context(
            serve_metrics(MetricsServer(registry, ready), metrics_listen, clock, logger)
        )
        nursery = await stack.enter_async_context(Nursery("controllers"))
        for role in (*alerting.runnables(), *manager.runnables(), *further):
            services = supervision.services(registry)
            supervised = supervise(role.name, role.run, clock=clock, log=logger, services=services)
            nursery.start(supervised, name=role.name)
        nursery.start(informers.run(), name="informers")
        gc_tuning.settle()
        click.echo(f"member {member} works for {access.server}; stop with Ctrl-C")
        click.echo(f"metrics at {url}/metrics")
        if kept is not None:
            click.echo(f"evidence at {kept.url}; the token is in {directory}/reader-token")
            click.echo(f"its certificate is by the authority in {directory}/pki/ca.crt")
        await stop.wait()
        click.echo("stopping: other members continue", err=True)
        nursery.cancel()


@contextlib.contextmanager
def _usage_errors() -> Iterator[None]:
    """Report what is wrong with options as errors of usage."""
    from grange.api.selectors import SelectorError
    from grange.app.manager import UnknownController
    from grange.reconcile.farm.config import BadFarmConfig

    try:
        yield
    except UnknownController as error:
        raise click.UsageError(f"--only: {error}") from error
    except SelectorError as error:
        raise click.UsageError(f"--selector: {error}") from error
    except (BadFarmConfig, InvalidTarget, SettingsError) as error:
        raise click.UsageError(str(error)) from error
