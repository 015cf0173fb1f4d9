#!/bin/sh
# Make the environment of the examples of jobs and sessions in $1 (PyTorch's CPU build, scikit-learn, mpi4py,
# grpcio), and see to
# it that there is an Open MPI.
set -eu
venv=$1
torch=torch==2.13.0+cpu
index=https://download.pytorch.org/whl/cpu
if ! command -v mpirun >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing openmpi-bin …"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends openmpi-bin >/dev/null
  else
    echo "no mpirun: the MPI example needs Open MPI; install it (apt install openmpi-bin, dnf install openmpi) and run make again" >&2
    exit 1
  fi
fi
sh "$(dirname "$0")/setup.sh" "$venv" requirements-jobs.lock
echo "installing $torch …"
# Without dependencies: the lock has them. An index that cannot be reached is passed over.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --progress-bar off --no-compile \
  --no-deps --retries 1 --extra-index-url "$index" "$torch"
# Compile here what three workers of a job would else compile side by side at their first start.
"$venv/bin/python" -c 'import torch.distributed, torch.nn.parallel, torch.utils.data, sklearn.datasets'
