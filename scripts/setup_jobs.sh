#!/bin/sh
# Make the environment of the examples of jobs and sessions in $1 (PyTorch, scikit-learn, mpi4py, grpcio), and see
# to it that there is an Open MPI.
set -eu
venv=$1
here=$(dirname "$0")
# Not in the lock: which build of it there is, and for which processors, depends on the machine's index.
torch=torch==2.13.0
if ! command -v mpirun >/dev/null; then
  sh "$here/apt_install.sh" openmpi-bin || {
    echo "no mpirun: the MPI example needs Open MPI; install it (apt install openmpi-bin, dnf install openmpi) and run make again" >&2
    exit 1
  }
fi
sh "$here/setup.sh" "$venv" requirements-jobs.lock
echo "installing $torch …"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --progress-bar off --no-compile "$torch"
# Compile here what three workers of a job would else compile side by side at their first start.
"$venv/bin/python" -c 'import grpc, torch.distributed, torch.nn.parallel, torch.utils.data, sklearn.datasets'
