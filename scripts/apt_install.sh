#!/bin/sh
# Install Debian's packages $@, as root of a Debian system; exit 3 where this machine is not one.
# Services in them are not started: tests start their own, on loopback.
# One at a time: apt-get does not wait for another one's lock on the package lists.
set -eu
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then exit 3; fi
echo "installing $* …"
exec 9>/var/lock/grange-apt-install
flock 9
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi
apt-get -qq -o DPkg::Lock::Timeout=300 update >/dev/null
apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" >/dev/null
