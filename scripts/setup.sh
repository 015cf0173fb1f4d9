#!/bin/sh
# Make the environment in $1: a venv with exactly what requirements.lock names, and Grange itself.
# With a lock as $2: exactly what that one names, without Grange.
set -eu
venv=$1
lock=${2:-requirements.lock}
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Grange needs Python 3.11 or newer; '$python' is $("$python" --version 2>&1). Try: make PYTHON=python3.12 …" >&2
  exit 1
}
started=$(date +%s)
echo "setting up $venv with $("$python" --version) …"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
# Compiled by all processors below, where all is used; pip compiles with one.
# The lock names all that is needed: pip need not look for more.
"$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off --no-compile --no-deps \
  --require-hashes -r "$lock" >"$venv/setup.log" 2>&1 &
installer=$!
if [ -t 1 ]; then begin='\r' end=''; else begin='' end='\n'; fi
while sleep 3 >/dev/null 2>&1 && kill -0 "$installer" 2>/dev/null; do
  printf "$begin  installing what %s names: %d s$end" "$lock" $(( $(date +%s) - started ))
done &
printer=$!
status=0
wait "$installer" || status=$?
kill "$printer" 2>/dev/null || true
[ -z "$begin" ] || echo
[ "$status" -eq 0 ] || { cat "$venv/setup.log" >&2; exit 1; }
# Like pip's: what is not valid Python of this version (such as a template) stays as it is.
# Other locks have much that nothing imports; what is imported is compiled then.
# So is the small part that is imported of these, which take most of the time.
rarely='/(kubernetes|moto|libcloud|botocore|mypy|pygments|setuptools|pkg_resources|numpy/.*/tests)/'
if [ $# -eq 1 ]; then
  "$venv/bin/python" -m compileall -qq -j 0 -x "/site-packages$rarely" "$venv/lib" src &
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
  wait "$!" || true
fi
echo "environment ready in $(( $(date +%s) - started )) s"
