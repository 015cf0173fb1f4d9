"""What hosts run: POSIX shell, each script harmless when it is repeated or cut short.

On the host, in its directory:

- ``claim``: a link whose text is ``CLUSTER/TOKEN``; to make a link is atomic, so a host has one holder.
- ``used/CLUSTER/TOKEN``: the token has ended here; it is made before the claim is removed.
- ``start`` and ``started``: the user data, and their exit code once they have run.
- ``running``: the boot and the process group of the user data, where they were begun.
- ``ending``: the machine is cleaned; the claim stays until that is done.
- ``lock``: held by what runs, and by nothing after a crash.

Arguments of all: directory, cluster, token.
"""

_HEAD = """
set -eu
umask 077
PATH=$PATH:/usr/sbin:/sbin
D=$1 KEY=$2/$3
claim() { readlink "$D/claim" 2>/dev/null || true; }
"""

# Arguments: type, price. Standard input: the user data.
LAUNCH = (
    _HEAD
    + """
mkdir -p "$D/used/$2"
if [ "$(claim)" != "$KEY" ]; then
  [ ! -e "$D/used/$KEY" ] || { echo ended; exit; }
  ln -sn "$KEY" "$D/claim" 2>/dev/null || [ "$(claim)" = "$KEY" ] || { echo busy; exit; }
  if [ -e "$D/used/$KEY" ]; then  # it has ended since the look above
    rm -f "$D/claim"
    echo ended
    exit
  fi
fi
if [ ! -e "$D/started" ] && [ ! -e "$D/ending" ]; then
  printf '%s %s' "$4" "$5" >"$D/machine"
  cat >"$D/start.new"
  chmod 700 "$D/start.new"
  mv "$D/start.new" "$D/start"
  setsid flock -n -o "$D/lock" sh -c '
    [ ! -e "$1/started" ] || exit 0
    { cat /proc/sys/kernel/random/boot_id; echo "$PPID"; } >"$1/running.new"
    mv "$1/running.new" "$1/running"
    [ ! -e "$1/ending" ] || exit 0  # it was written before running was looked for
    code=0
    "$1/start" || code=$?
    echo "$code" >"$1/started.new"
    mv "$1/started.new" "$1/started"
  ' sh "$D" >"$D/output.log" 2>&1 </dev/null &
fi
echo claimed
"""
)

LIST = (
    _HEAD
    + """
HELD=$(claim)
[ -n "$HELD" ] || exit 0
if [ -e "$D/ending" ]; then STATE=ending
elif [ "$(cat "$D/started" 2>/dev/null)" = 0 ]; then STATE=running
else STATE=pending
fi
printf '%s %s %s\\n' "$HELD" "$STATE" "$(cat "$D/machine" 2>/dev/null)"
"""
)

# Argument: commands that clean the host.
TERMINATE = (
    _HEAD
    + """
[ "$(claim)" = "$KEY" ] || exit 0
: >"$D/ending"
GROUP=
# An earlier call may remove it meanwhile.
[ -e "$D/started" ] || { read -r BOOT && read -r GROUP; } 2>/dev/null <"$D/running" || true
if [ -n "$GROUP" ] && [ "$BOOT" = "$(cat /proc/sys/kernel/random/boot_id)" ]; then
  kill -s TERM -- "-$GROUP" 2>/dev/null || true
fi
setsid flock -w 60 -o "$D/lock" sh -c '
  set -eu
  [ "$(readlink "$1/claim")" = "$2" ] || exit 0
  sh -c "$3"
  rm -f "$1/start" "$1/started" "$1/running" "$1/running.new" "$1/machine"
  mkdir -p "$1/used/$2"
  rm -f "$1/ending" "$1/claim"
' sh "$D" "$KEY" "$4" >"$D/ending.log" 2>&1 </dev/null &
"""
)

# Argument: commands that remove what a holder left.
WIPE_HOST = (
    _HEAD
    + """
[ "$(claim)" = "$KEY" ] && [ ! -e "$D/ending" ] || { echo gone; exit; }
flock -w 30 -o "$D/lock" sh -c "$4" >&2
echo wiped
"""
)

_STOP_AGENT = """\
set -eu
LOCK=/var/lib/grange/agent.lock
if [ -d /run/systemd/system ]; then systemctl stop grange-agent.service 2>/dev/null || true; fi
if [ -e "$LOCK" ] && ! flock -n "$LOCK" true; then
  kill "$(cat /etc/grange/agent.pid)"
  flock -w 40 "$LOCK" true
fi
"""
# The agent holds its lock until its pods have ended; without systemd it is found by its number.

RELEASE = (
    _STOP_AGENT
    + """\
if [ -d /run/systemd/system ]; then systemctl disable grange-agent.service 2>/dev/null || true; fi
rm -rf /var/lib/grange /etc/grange /etc/systemd/system/grange-agent.service
"""
)
"""Ends the agent, which ends its pods, and removes what they left; the installed programs stay."""

WIPE = (
    _STOP_AGENT
    + """\
find /var/lib/grange -mindepth 1 -maxdepth 1 ! -name pki -exec rm -rf {} +
/etc/grange/install-agent
"""
)
"""Removes all but the identity of the node, and starts the agent again."""
