"""``exec``: runs a command in the container; exit code 0 passes."""

from grange.agent.container_runtime import PodRuntime, RuntimeFailedError
from grange.agent.probe_answer import Answer, ProbeTarget
from grange.api.kinds.pod import Probe


def asks(probe: Probe) -> bool:
    """Whether the probe runs a command."""
    return probe.exec is not None


async def ask(probe: Probe, target: ProbeTarget, runtime: PodRuntime, limit_s: float) -> Answer:
    """Run the command once; the runtime kills it at the limit."""
    command = tuple(probe.exec.command) if probe.exec is not None else ()
    if not command:
        return Answer(ok=False, message="exec names no command")
    try:
        result = await runtime.run(target.target, command, limit_s)
    except RuntimeFailedError as error:
        return Answer(ok=None, message=str(error))
    if result.timed_out:
        return Answer(ok=False, message=f"command took longer than {limit_s:g}s")
    output = result.output.strip()
    suffix = f": {output}" if output else ""
    return Answer(result.exit_code == 0, f"command exited with {result.exit_code}{suffix}")
