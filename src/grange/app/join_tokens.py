"""``grange token``: tokens with which machines join; the entropy comes from the operating system."""

import shlex
from datetime import timedelta

import click

from grange.api import bootstrap_tokens, names, timestamps, x509_facts
from grange.api.bootstrap_tokens import BootstrapToken
from grange.api.kinds import SECRET
from grange.app import key_files
from grange.cli import options, session, terminal
from grange.cli.command import Command, LazyGroup, Section, Verb
from grange.cli.durations import parse_term
from grange.cli.environment import Environment

_NAMESPACE = bootstrap_tokens.NAMESPACE
_MODULE = "grange.app.join_tokens"

command = LazyGroup(
    name="token",
    verbs={
        "create": Verb(Section.RUN, _MODULE, "Create a token and print how to join.", "create"),
        "list": Verb(Section.INSPECT, _MODULE, "List the tokens.", "list_"),
        "delete": Verb(Section.OPERATE, _MODULE, "Delete tokens.", "delete"),
    },
    help="Manage the tokens with which machines join.",
    epilog="First steps: grange token create, then run what it prints on the other machine.",
)


@click.command(cls=Command, examples=("grange token create --ttl 1h --node worker-1 --once",))
@click.option("--ttl", default="24h", show_default=True, help="How long it can be used.")
@click.option("--node", default="", metavar="NAME", help="Only for the node of this name.")
@click.option("--once", is_flag=True, help="Only for the first machine that uses it.")
@click.option("--server", default="", metavar="URL", help="URL for the other machine.")
@options.output(("json",))
@options.connected
def create(
    env: Environment,
    target: session.ClusterTarget,
    *,
    ttl: str,
    node: str,
    once: bool,
    server: str,
    output: str,
) -> None:
    """Create a token and print the command with which a machine joins."""
    if node and (why := names.check_dns_subdomain(node)):
        raise click.UsageError(f"--node {node}: {why}")
    seconds = parse_term("--ttl", ttl)

    async def verb(opened: session.ApiSession) -> int:
        token = BootstrapToken(
            key_files.random_text(bootstrap_tokens.ALPHABET, bootstrap_tokens.ID_LENGTH),
            key_files.random_text(bootstrap_tokens.ALPHABET, bootstrap_tokens.SECRET_LENGTH),
            expires=env.clock.now() + timedelta(seconds=seconds),
            node=node,
            once=once,
        )
        await opened.client.create(SECRET, bootstrap_tokens.document(token), _NAMESPACE)
        url = server or (opened.access.server if opened.access else "")
        ca_pem = opened.access.ca_pem if opened.access else b""
        pin = x509_facts.read(ca_pem).pin if ca_pem else ""
        text = f"{token.id}.{token.secret}"
        words = ["grange", "agent", "--server", url, "--token", text, "--ca-hash", pin]
        words += ["--node-name", node] if node else []
        if output:
            facts = {"token": text, "server": url, "caHash": pin, "node": node}
            click.echo(terminal.json_text(facts))
        else:
            click.echo(shlex.join(words))
        return 0

    session.run(env, target, verb)


@click.command(cls=Command, examples=("grange token list",))
@options.output(("json",))
@options.connected
def list_(env: Environment, target: session.ClusterTarget, *, output: str) -> None:
    """List the tokens, without their secret halves."""

    async def verb(opened: session.ApiSession) -> int:
        selector = f"type={bootstrap_tokens.SECRET_TYPE}"
        found = (await opened.client.list(SECRET, _NAMESPACE, fields=selector)).items
        items = [_shown(token) for token in filter(None, map(bootstrap_tokens.read, found))]
        if output:
            click.echo(terminal.json_text({"items": items}))
            return 0
        row = "{:<10}{:<24}{:<24}{}"
        click.echo(row.format("TOKEN", "EXPIRES", "NODE", "USE"))
        for item in items:
            ends, node = item["expires"] or "never", item["node"] or "any"
            click.echo(row.format(item["token"], ends, node, item["use"]))
        return 0

    session.run(env, target, verb)


@click.command(cls=Command, examples=("grange token delete abcdef",))
@click.argument("tokens", nargs=-1, required=True, metavar="ID…")
@options.output(("json",))
@options.connected
def delete(
    env: Environment, target: session.ClusterTarget, *, tokens: tuple[str, ...], output: str
) -> None:
    """Delete the tokens ID…: nothing joins with them any more; nodes that joined stay."""

    async def verb(opened: session.ApiSession) -> int:
        ids = [token.partition(".")[0] for token in tokens]
        for token_id in ids:
            await opened.client.delete(SECRET, bootstrap_tokens.secret_name(token_id), _NAMESPACE)
            if not output:
                click.echo(f"token/{token_id} deleted")
        if output:
            click.echo(terminal.json_text({"deleted": ids}))
        return 0

    session.run(env, target, verb)


def _shown(token: BootstrapToken) -> dict[str, str]:
    """What anyone may read of a token, empty where nothing bounds it."""
    return {
        "token": token.id,
        "expires": timestamps.rfc3339(token.expires) if token.expires else "",
        "node": token.node,
        "use": ("used" if token.used_by else "once") if token.once else "any number",
    }
