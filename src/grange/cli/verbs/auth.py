"""``grange auth``: who one is for the server, and what one may do."""

import click

from grange.api import codec, http
from grange.api.http import Request
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.cli import completers, options, session, terminal
from grange.cli.command import Group
from grange.cli.environment import Environment
from grange.cli.printers import documents, table

_REVIEWS = "/apis/authorization.k8s.io/v1"
_WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_AS = click.option(
    "--as", "user", default="", metavar="USER", help="Ask as this user; needs the right to."
)


@click.group("auth", cls=Group)
def command() -> None:
    """Rights of users and programs."""


@command.command(
    "can-i",
    examples=(
        "grange auth can-i delete pods",
        "grange auth can-i get pod/web --subresource log --as system:serviceaccount:default:ci",
        "grange auth can-i --list -n production",
    ),
)
@click.argument("verb", default="")
@click.argument("what", nargs=-1, shell_complete=completers.objects, metavar="[KIND [NAME]]")
@click.option("--subresource", default="", metavar="NAME", help="Of the kind, e.g. log or scale.")
@click.option("--list", "lists", is_flag=True, help="List everything that is allowed.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code is the answer.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Ask about every namespace.")
@_AS
@options.output(documents.REPORT)
@options.connected
def can_i(  # noqa: PLR0913  click hands every option over by name
    env: Environment,
    target: session.ClusterTarget,
    *,
    verb: str,
    what: tuple[str, ...],
    subresource: str,
    lists: bool,
    quiet: bool,
    user: str,
    output: str,
) -> None:
    """Whether the server allows VERB on KIND, KIND NAME, KIND/NAME or a path such as /metrics.

    Prints yes or no. The exit code is 0 for yes and 1 for no.
    """
    if lists == bool(verb):
        raise click.UsageError("write VERB KIND, or --list alone")
    kind, name = ("", "") if lists else wanted(what)
    if lists and target.all_namespaces:
        raise click.UsageError("--list is about one namespace; choose it with -n")

    async def run(opened: session.ApiSession) -> int:
        if lists:
            found = await _rules(opened, user)
            if output:
                terminal.write(documents.report(output, found))
            elif not quiet:
                terminal.echo("\n".join(table.render(rows(found))))
            return 0
        asked = await attributes(opened, verb, kind, name, subresource)
        status = await _review(opened, "selfsubjectaccessreviews", asked, user)
        allowed = bool(status.get("allowed"))
        if output:
            terminal.write(documents.report(output, status))
        elif not quiet:
            reason = str(status.get("reason") or "")
            terminal.echo("yes" if allowed else f"no - {reason}" if reason else "no")
        return 0 if allowed else 1

    session.run(env, target, run)


@command.command("whoami", examples=("grange auth whoami", "grange auth whoami -o json"))
@_AS
@options.output(documents.REPORT)
@options.connected
def whoami(env: Environment, target: session.ClusterTarget, *, user: str, output: str) -> None:
    """Print the user that the server takes the kubeconfig's credential for, with its groups."""

    async def run(opened: session.ApiSession) -> int:
        status = await _create(opened, _WHOAMI, {}, user)
        found = status.get("userInfo") or {}
        if output:
            terminal.write(documents.report(output, found))
        else:
            groups = ", ".join(map(str, found.get("groups") or ()))
            lines = [["Username", str(found.get("username", ""))], ["Groups", groups]]
            terminal.echo("\n".join(table.render(lines)))
        return 0

    session.run(env, target, run)


def wanted(what: tuple[str, ...]) -> tuple[str, str]:
    """Kind and name that are asked about; the name may be empty, and the kind a path.

    Raises:
        click.UsageError: there is no kind, or more than one object.
    """
    if len(what) == 1 and what[0].startswith("/"):
        return what[0], ""
    pairs = session.split_names(what)
    if len(pairs) != 1:
        raise click.UsageError("one question at a time; write VERB KIND or VERB KIND NAME")
    return pairs[0]


async def attributes(
    opened: session.ApiSession, verb: str, kind: str, name: str, subresource: str
) -> Document:
    """The spec of the review that asks.

    A kind that the server does not have is asked about by its name, as kubectl does: a rule may
    name it.
    """
    if kind.startswith("/"):
        return {"nonResourceAttributes": {"verb": verb, "path": kind}}
    namespace = opened.namespace
    if kind == "*":
        group, plural = "*", "*"
    else:
        try:
            found = await opened.kind(kind)
            group, plural = found.group, found.plural
            namespace = namespace if found.namespaced else ""
        except NotFound:
            terminal.echo(f'Warning: the server has no resource type "{kind}"', err=True)
            plural, _, group = kind.partition(".")
    asked = {
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "namespace": namespace,
        "name": name,
    }
    return {"resourceAttributes": {key: value for key, value in asked.items() if value}}


def rows(status: Document) -> list[list[str]]:
    """The rules of a user as a table, each once: a row for each resource, then one for each path."""
    found = [
        [kind, "", ",".join(rule.get("resourceNames") or ()), _verbs(rule)]
        for rule in status.get("resourceRules") or ()
        for kind in _kinds(rule)
    ]
    found += [
        ["", path, "", _verbs(rule)]
        for rule in status.get("nonResourceRules") or ()
        for path in rule.get("nonResourceURLs") or ()
    ]
    once = dict.fromkeys(map(tuple, found))
    return [["RESOURCES", "PATHS", "NAMES", "VERBS"], *map(list, once)]


def _kinds(rule: Document) -> list[str]:
    groups = rule.get("apiGroups") or ("",)
    names = rule.get("resources") or ()
    return [f"{name}.{group}" if group else str(name) for name in names for group in groups]


def _verbs(rule: Document) -> str:
    return ",".join(map(str, rule.get("verbs") or ()))


async def _rules(opened: session.ApiSession, user: str) -> Document:
    spec: Document = {"namespace": opened.namespace or "default"}
    return await _review(opened, "selfsubjectrulesreviews", spec, user)


async def _review(opened: session.ApiSession, plural: str, spec: Document, user: str) -> Document:
    return await _create(opened, f"{_REVIEWS}/{plural}", {"spec": spec}, user)


async def _create(opened: session.ApiSession, path: str, document: Document, user: str) -> Document:
    """The status of a review that the server answers."""
    headers = {"content-type": http.JSON, "accept": http.JSON}
    if user:
        headers["impersonate-user"] = user
    response = await opened.fetch(
        Request("POST", path, headers=headers, body=codec.encode(document))
    )
    status: Document = codec.decode_document(response.body).get("status") or {}
    return status
