"""The files and the command that install the agent on a machine and start it."""

import shlex

from grange.machines.bootstrap.agent_package import AgentPackage
from grange.machines.bootstrap.join_facts import JoinFacts
from grange.machines.providers.cloud_config import BootFile

DIRECTORY = "/etc/grange"
INSTALL = f"{DIRECTORY}/install-agent"
_RUN, _VARIABLES = f"{DIRECTORY}/run-agent", f"{DIRECTORY}/agent.env"
_PID = f"{DIRECTORY}/agent.pid"
_PROGRAMS, _DATA = "/opt/grange", "/var/lib/grange"
_UNIT = "/etc/systemd/system/grange-agent.service"

_INSTALL_SCRIPT = """\
#!/bin/sh
# Installs the agent unless it is there, and starts it. To run it again does no harm.
set -eu
if [ ! -x {programs}/bin/grange ]; then
  for python in python3.14 python3.13 python3.12 python3.11 python3 ''; do
    "${{python:-false}}" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
  done
  [ -n "$python" ] || {{ echo 'grange: no Python 3.11 or newer with venv; add it to the image' >&2; exit 1; }}
  "$python" -m venv {programs}
  tries=1
  until {programs}/bin/python -m pip install --quiet --disable-pip-version-check {requirement}; do
    [ "$tries" -lt 5 ] || {{ echo 'grange: the agent cannot be installed' >&2; exit 1; }}
    tries=$((tries + 1))
    sleep 5
  done
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl enable grange-agent.service
  systemctl restart grange-agent.service
else
  set -a
  . {variables}
  setsid {run} >> /var/log/grange-agent.log 2>&1 </dev/null &
  echo "$!" > {pid}
fi
"""

_UNIT_TEXT = f"""\
[Unit]
Description=Agent of Grange
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
EnvironmentFile={_VARIABLES}
ExecStart={_RUN}
Restart=always
RestartSec=2
KillMode=process
TimeoutStopSec=60

[Install]
WantedBy=multi-user.target
"""


def agent_files(join: JoinFacts, package: AgentPackage) -> tuple[BootFile, ...]:
    """The files, by path.

    Raises:
        MisconfiguredError: a fact cannot stand in a script.
    """
    known = join.variables()
    command = [f"{_PROGRAMS}/bin/grange", "agent", "--server", known["server"]]
    command += ["--ca-hash", known["caHash"], "--node-name", known["machine"]]
    command += ["--data-dir", _DATA]
    for label in filter(None, known["labels"].split(",")):
        command += ["--label", label]
    for taint in filter(None, known["taints"].split(",")):
        command += ["--taint", taint]
    script = _INSTALL_SCRIPT.format(
        programs=_PROGRAMS,
        requirement=shlex.quote(package.requirement),
        variables=_VARIABLES,
        run=_RUN,
        pid=_PID,
    )
    files = (
        # The token is in no command line: other users of the machine could read it there.
        BootFile(_VARIABLES, f"GRANGE_JOIN_TOKEN={known['token']}\n"),
        BootFile(INSTALL, script, "0700"),
        BootFile(_RUN, f"#!/bin/sh\nexec {shlex.join(command)}\n", "0700"),
        BootFile(_UNIT, _UNIT_TEXT, "0644"),
    )
    return tuple(sorted(files, key=lambda file: file.path))
