#!/bin/sh
# Resolve the locks from pyproject.toml: hashes, no index addresses.
set -eu
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
python3 -m venv "$tool"
"$tool/bin/python" -m pip install --quiet uv
compile() {
  "$tool/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-header "$@"
}
compile --extra dev pyproject.toml -o requirements.lock
compile --group docs -o requirements-docs.lock
compile --group jobs -o requirements-jobs.lock
