"""What a run leaves: the summary in the terminal, JUnit files and a document for ``-o``."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from grange.api.meta import Document
from grange.base.errors import GrangeError
from grange.cli import testsession_board, testsession_view
from grange.cli.environment import Environment
from grange.cli.testruns import run_display
from grange.cli.testruns.tracked_run import SessionRun
from grange.evidence import junit
from grange.evidence.junit import JunitSuite

_USUAL_SUITE = "grange"
_DETAILED = 10  # sessions that failed and whose logs are shown; of the others, the table has a line


class JunitError(GrangeError):
    """A JUnit file cannot be written; the message names it and the cause."""


def summary(
    runs: Sequence[SessionRun], env: Environment, directory: Path | None = None
) -> list[str]:
    """The outcome: of many a table, and why each bad end came about, with the last lines of logs.

    Args:
        runs: all sessions.
        env: the environment.
        directory: where logs were written; None where they were not.
    """
    found = [] if len(runs) == 1 else [*run_display.cells(runs, env), ""]
    bad = [run for run in runs if len(runs) == 1 or run.exit_code]
    for run in bad[:_DETAILED]:
        found += [*_outcome(run, env, directory), ""]
    if len(bad) > _DETAILED:
        found += [f"{len(bad) - _DETAILED} more ended badly; their logs are not shown.", ""]
    return found[:-1]


def _outcome(run: SessionRun, env: Environment, directory: Path | None) -> list[str]:
    session, word = run.session, run_display.outcome(run).upper()
    took = run_display.took(run, env)
    if session is None:
        return [f"{word} {run.planned.test}: {run.error or run.skipped}"]
    detail = run.error or "; ".join(run.regressions) or testsession_view.detail(session)
    found = [f"{word} {testsession_view.label(session)}{took}{f': {detail}' if detail else ''}"]
    for name, text in testsession_board.metrics(session).items():
        check = run.checks.get(name)
        compared = f"  {check.verdict}: {check.message}" if check is not None else ""
        found.append(f"  {text}{compared}")
    for item in testsession_view.failing(session) if run.exit_code else ():
        where = f" on {item.node}" if item.node else ""
        text = testsession_board.component_message(item) or item.health.lower()
        found.append(f"  {item.name}{where}: {text}")
        found += [f"  | {line}" for line in run.tail(item.name)]
    if directory is not None:
        found.append(f"  logs: {directory / run.name}")
    elif run.exit_code and run.tails:
        found.append(f"  grange test logs {run.name}")
    return found


def document(runs: Sequence[SessionRun], code: int) -> Document:
    """The outcome as a document."""
    return {
        "exitCode": code,
        "sessions": [
            {
                "name": run.name,
                "test": run.planned.test,
                "queue": run.planned.queue,
                "parameters": dict(run.planned.parameters),
                "verdict": run.verdict,
                "error": run.error,
                "skipped": run.skipped,
                "regressions": run.regressions,
                "status": (run.document or {}).get("status") or {},
            }
            for run in runs
        ],
    }


def suites(queues: Mapping[str, Sequence[SessionRun]], directory: Path | None) -> list[JunitSuite]:
    """A suite for each queue.

    Args:
        queues: the sessions by queue.
        directory: where logs were written.
    """
    return [
        JunitSuite(
            name=name or _USUAL_SUITE,
            records=[run.record(directory) for run in runs],
        )
        for name, runs in queues.items()
    ]


def write_junit(target: Path, found: Sequence[JunitSuite]) -> list[Path]:
    """Write the suites: a name that ends with ``.xml`` is one file, any other a directory.

    Raises:
        JunitError: it cannot be written.
    """
    if target.suffix == ".xml":
        files = {target: junit.render(found)}
    else:
        plain = [suite.name.replace("/", "_").lstrip(".") or "_" for suite in found]
        files = {
            target / f"{name}.xml": junit.render([suite])
            for name, suite in zip(plain, found, strict=True)
        }
    for path, body in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        except OSError as error:
            raise JunitError(f"--junit {path}: not written: {error.strerror}") from error
    return list(files)
