"""Which versions of agents and control planes work together, as in Kubernetes.

An agent is not newer than its control plane, and at most three minor versions older: update the control
plane first, and the agents after it.
"""

import re

import msgspec

import grange
from grange.api.http import Request
from grange.api.status import ApiError
from grange.base.clock import Clock
from grange.client.transport import Transport

_OLDER_MAX = 3
_WAIT_S = 2.0
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.")
_MARK = "+grange."


def fault(agent: str, server: str) -> str:
    """Why an agent cannot work with a control plane, and the remedy; empty if it can.

    Args:
        agent: version of Grange on this machine.
        server: version of Grange of the control plane; a text that is none is taken as fitting.
    """
    ours, theirs = _VERSION.match(agent), _VERSION.match(server)
    if ours is None or theirs is None:
        return ""
    (our_major, our_minor), (major, minor) = (
        tuple(map(int, item.groups())) for item in (ours, theirs)
    )
    text = f"this agent is Grange {agent}, and its control plane is {server}"
    if (our_major, our_minor) > (major, minor):
        return f"{text}: an agent may not be newer; update the control plane first, or install {server} here"
    if our_major != major or minor - our_minor > _OLDER_MAX:
        return f"{text}: an agent may be {_OLDER_MAX} minor versions older at most; install {server} here"
    return ""


async def check_version(transport: Transport, clock: Clock) -> str:
    """The fault of this program with a control plane; empty while that cannot be asked."""
    try:
        async with clock.timeout(_WAIT_S):
            answer = await transport.send(Request("GET", "/version"))
        found = msgspec.json.decode(answer.body)["gitVersion"]
    except (ApiError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        return ""
    return fault(grange.__version__, str(found).partition(_MARK)[2])
