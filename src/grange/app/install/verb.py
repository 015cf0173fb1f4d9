"""``grange install``: print what a cluster of Kubernetes needs to run Grange."""

from typing import Any

import click
import yaml

from grange.app import flags
from grange.app.agent_packages import agent_package
from grange.app.install import install_manifests, rbac
from grange.app.install.install_manifests import InstallPlan, InvalidInstallPlan
from grange.app.settings import Settings, SettingsError
from grange.cli import options
from grange.cli.command import Command
from grange.cli.printers import documents


@click.command(
    cls=Command,
    examples=(
        "grange install --image registry.example/grange:0.1.0 | kubectl apply -f -",
        "grange install --only crds | kubectl apply -f -",
        "grange install --without kubeflow --image registry.example/grange:0.1.0",
    ),
)
@click.option(
    "--namespace",
    default=install_manifests.NAMESPACE,
    show_default=True,
    help="Where the controllers run; printed along only if it is the default, else it must exist.",
)
@click.option(
    "--image",
    default="",
    metavar="IMAGE",
    help="Image with grange on its PATH. None is published; docs/how-to/kubernetes.md shows how to build one.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, 100),
    default=2,
    show_default=True,
    help="So many processes share the work, and take over from each other.",
)
@click.option(
    "--controllers",
    default=",".join(rbac.CONTROLLERS),
    show_default=True,
    metavar="NAME,…",
    help="What they run; it decides what they may do, and which kinds are printed.",
)
@click.option(
    "--without",
    type=click.Choice([*install_manifests.GROUPS]),
    multiple=True,
    help="Leave kinds to another controller. kubeflow: TFJob and PyTorchJob, where a training operator runs.",
)
@click.option(
    "--only",
    type=click.Choice([*install_manifests.PARTS]),
    default=None,
    help="Print one part. crds: our kinds. rbac: accounts and roles. deployment: the controllers.",
)
@flags.options(Settings, "agent_version", "agent_url")
@options.output(("yaml", "json"), default="yaml")
def command(  # noqa: PLR0913  click hands every option over by name
    *,
    output: str,
    namespace: str,
    image: str,
    replicas: int,
    controllers: str,
    without: tuple[str, ...],
    only: str | None,
    agent_version: str,
    agent_url: str,
) -> None:
    """Print CRDs, RBAC and a Deployment for a Kubernetes cluster.

    Nothing is asked of any cluster. What is printed depends on the options and on this version of
    grange alone; applying it again with a newer one is an upgrade.
    """
    chosen = tuple(dict.fromkeys(filter(None, controllers.split(","))))
    try:
        package = agent_package(agent_version, agent_url)
        left_out = tuple(dict.fromkeys(without))
        plan = InstallPlan(namespace, image, replicas, chosen, left_out, package)
        found = install_manifests.documents(plan, only or "")
    except (InvalidInstallPlan, SettingsError) as error:
        raise click.UsageError(str(error)) from error
    if output == "json":
        whole = {"apiVersion": "v1", "kind": "List", "items": found}
        click.echo(documents.report(output, whole), nl=False)
        return
    text = yaml.dump_all(
        found, Dumper=_Plain, sort_keys=False, allow_unicode=True, explicit_start=True, width=100
    )
    click.echo(text, nl=False)


class _Plain(yaml.CSafeDumper):
    """Writes everything out: what comes twice is not the same thing."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
