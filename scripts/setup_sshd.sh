#!/bin/sh
# Install OpenSSH's server for its tests, where this machine can: Debian's package, as root. It is not started.
set -eu
PATH="$PATH:/usr/sbin"
command -v sshd >/dev/null && exit 0
status=0
sh "$(dirname "$0")/apt_install.sh" openssh-server || status=$?
[ "$status" -ne 3 ] || {
  echo "tests with OpenSSH's server do not exist on this machine: only root of a Debian system installs it"
  exit 0
}
exit "$status"
