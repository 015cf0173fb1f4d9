"""``grange cp``: copy files to and from containers."""

import tempfile
from pathlib import Path

import click

from grange.cli import options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.file_archive import CopyFailed, PodPath, pack, read_path, unpack
from grange.cli.pod_lookup import container_of, running_pod
from grange.cli.pod_tar import TarEnd, run_in_pod

_IN_MEMORY_BYTES = 16 * 1024 * 1024


@click.command(
    cls=Command,
    examples=(
        "grange cp notes.txt web-1:notes.txt",
        "grange cp web-1:/var/log/app ./logs -c main",
    ),
)
@click.argument("source")
@click.argument("to")
@click.option("-c", "--container", default="", help="Container; the first one by default.")
@options.connected
def command(
    env: Environment, target: session.ClusterTarget, source: str, to: str, container: str
) -> None:
    """Copy a file or directory from SOURCE to TO; one of them is POD:PATH.

    A copy goes into a directory that exists, as cp does it. The container needs the program tar.
    """
    begin, end = read_path(source), read_path(to)
    if isinstance(begin, PodPath) == isinstance(end, PodPath):
        raise click.UsageError("one of SOURCE and TO must be POD:PATH, and the other a local path")

    async def verb(opened: session.ApiSession) -> None:
        if isinstance(begin, Path) and isinstance(end, PodPath):
            await _upload(opened, begin, end, container)
        elif isinstance(begin, PodPath) and isinstance(end, Path):
            await _download(opened, begin, end, container)

    session.run(env, target, verb)


async def _upload(opened: session.ApiSession, source: Path, target: PodPath, wanted: str) -> None:
    own = _name_of(source)
    pod = await running_pod(opened, target.pod)
    name = container_of(pod, wanted)["name"]
    is_directory = await run_in_pod(opened, pod, name, ("test", "-d", target.path))
    found = target
    if is_directory.exit_code == 0 and own:
        found = PodPath(target.pod, f"{target.path.rstrip('/')}/{own}")
    # Owners are those of the container: users of this machine mean nothing there.
    words = ("tar", "xof", "-", "-C", found.parent)
    end = await run_in_pod(opened, pod, name, words, given=pack(source, found.name, _skipped))
    _check(end, f"cannot write {found.path}")


async def _download(opened: session.ApiSession, source: PodPath, target: Path, wanted: str) -> None:
    pod = await running_pod(opened, source.pod)
    name = container_of(pod, wanted)["name"]
    found = _place_of(source.name, target)
    words = ("tar", "cf", "-", "-C", source.parent, f"./{source.name}")
    # A copy that breaks off leaves nothing behind.
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as archive:

        async def take(data: bytes) -> None:
            archive.write(data)

        _check(await run_in_pod(opened, pod, name, words, take=take), f"cannot read {source.path}")
        archive.seek(0)
        unpack(archive, source.name, found, _skipped)


def _name_of(source: Path) -> str:
    """The name that a path of this machine has in its directory."""
    if not (source.exists() or source.is_symlink()):
        raise CopyFailed(f"{source}: no such file or directory")
    return source.resolve().name if source.name in {"", ".", ".."} else source.name


def _place_of(name: str, target: Path) -> Path:
    """Where a copy of this name goes."""
    found = (target / name if target.is_dir() and name != "." else target).absolute()
    if not found.parent.is_dir():
        raise CopyFailed(f"cannot write {found}: its directory does not exist")
    return found


def _skipped(path: str) -> None:
    terminal.echo(f"skipped {path}: neither a file nor a directory, or a link to outside", err=True)


def _check(end: TarEnd, what: str) -> None:
    if end.exit_code:
        why = end.errors.splitlines()[0] if end.errors else "tar gave no reason"
        raise CopyFailed(f"{what}: {why} (exit code {end.exit_code})")
