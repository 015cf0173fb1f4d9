#!/bin/sh
# Install containerd and what its tests need, where this machine can: Debian's packages, as root.
set -eu
missing=''
for program in containerd ctr runc busybox; do
  command -v "$program" >/dev/null || missing="$missing $program"
done
[ -z "$missing" ] && exit 0
status=0
sh "$(dirname "$0")/apt_install.sh" containerd runc busybox-static containernetworking-plugins || status=$?
[ "$status" -ne 3 ] || {
  echo "tests of the container runtime do not exist on this machine: there is no$missing, and only root of a Debian system installs it"
  exit 0
}
exit "$status"
