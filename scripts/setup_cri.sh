#!/bin/sh
# Install containerd and what its tests need, where this machine can: Debian's packages, as root.
set -eu
missing=''
for program in containerd ctr runc busybox; do
  command -v "$program" >/dev/null || missing="$missing $program"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "tests of the container runtime do not exist on this machine: there is no$missing, and only root of a Debian system installs it"
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null
apt-get install -y -qq --no-install-recommends containerd runc busybox-static containernetworking-plugins >/dev/null
