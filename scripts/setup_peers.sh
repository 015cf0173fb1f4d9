#!/bin/sh
# Install nginx and wrk, with which `make bench` compares the proxy, where this machine can: Debian's packages, as root.
# Neither is started.
set -eu
PATH="$PATH:/usr/sbin"
command -v nginx >/dev/null && command -v wrk >/dev/null && exit 0
status=0
sh "$(dirname "$0")/apt_install.sh" nginx-light wrk || status=$?
[ "$status" -ne 3 ] || {
  echo "the proxy is measured without nginx on this machine: only root of a Debian system installs it"
  exit 0
}
exit "$status"
