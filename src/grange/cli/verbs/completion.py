"""``grange completion``: the script that completes this program's words in a shell."""

import click
from click.shell_completion import get_completion_class

from grange.cli import terminal
from grange.cli.command import Command

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_GRANGE_COMPLETE"  # the one that click reads for a program called grange


@click.command(
    cls=Command,
    examples=(
        'eval "$(grange completion bash)"',
        "grange completion bash > ~/.local/share/bash-completion/completions/grange",
        "grange completion zsh > ~/.zfunc/_grange",
        "grange completion fish > ~/.config/fish/completions/grange.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a script that completes verbs, options, kinds and names of objects."""
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}: click does not know it")
    terminal.write(found(context.find_root().command, {}, "grange", _VARIABLE).source())
