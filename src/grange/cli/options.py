"""Options that many verbs have, so that they are spelled, checked and completed alike."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from grange.cli import completers
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.session import ClusterTarget

C = TypeVar("C", bound=Callable[..., Any])


def connected(function: Callable[..., None]) -> Callable[..., None]:
    """Give a verb ``env`` and ``target``, with the options that choose the target.

    Adds ``--kubeconfig``, ``--context`` and ``-n``; an ``all_namespaces`` option of the verb itself
    becomes part of the target.
    """

    @click.pass_obj
    @functools.wraps(function)
    def wrapped(env: Environment, /, **options: Any) -> None:
        target = ClusterTarget(
            kubeconfig=options.pop("kubeconfig"),
            context=options.pop("context"),
            namespace=options.pop("namespace"),
            all_namespaces=options.pop("all_namespaces", False),
        )
        function(env, target, **options)

    for option in (
        click.option(
            "-n",
            "--namespace",
            default="",
            shell_complete=completers.namespaces,
            help="Namespace; the context's by default.",
        ),
        click.option(
            "--context",
            default="",
            shell_complete=completers.contexts,
            help="Context of the kubeconfig.",
        ),
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path),
            default=None,
            help="Kubeconfig file; $KUBECONFIG, then ~/.kube/config by default.",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped


class Format(click.ParamType[str]):
    """The value of ``-o``; an unknown one is refused before anything is done."""

    name = "format"

    def __init__(self, formats: tuple[str, ...]) -> None:
        self.formats = formats

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The format as it was given."""
        if value:
            documents.check(value, self.formats)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        """The formats that begin so."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in self.formats if name.startswith(incomplete)]


def output(formats: tuple[str, ...], default: str = "") -> Callable[[C], C]:
    """Give a verb ``output``: one of these formats, or empty."""
    return click.option(
        "-o",
        "--output",
        type=Format(formats),
        default=default,
        show_default=bool(default),
        help=f"Output format: {documents.listed(formats)}.",
    )


def container(default: str) -> Callable[[C], C]:
    """Give a verb whose argument is ``what`` the option ``container``.

    Args:
        default: which container it is without the option, for the help.
    """
    return click.option(
        "-c",
        "--container",
        default="",
        shell_complete=completers.containers,
        help=f"Container; {default}.",
    )


def timeout(default: str) -> Callable[[C], C]:
    """Give a verb ``timeout``, a duration as text."""
    return click.option(
        "--timeout", default=default, show_default=True, help="For example 30s, 2m, 1h."
    )


SELECTOR = click.option(
    "-l", "--selector", default="", help="Label selector, for example app=web,tier!=db."
)
FILES = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=click.Path(),
    help="File, directory, or - (repeat).",
)
YES = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
WHAT = click.argument("what", nargs=-1, required=True, shell_complete=completers.objects)
