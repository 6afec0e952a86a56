#!/usr/bin/env bash
# Builds the wheel, installs it beside the executorch package in a folder of its own, moves that
# folder, builds examples/two_conversations.cpp against it and runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
work=build/package
rm -rf "$work"
mkdir -p "$work/made"

python -m pip wheel -q --no-build-isolation --no-deps -w "$work" .
python -m pip install -q --no-deps --target "$work/made/site" "$work"/etrt-*.whl
executorch=$(python -c "import importlib.util as u; print(u.find_spec('executorch').submodule_search_locations[0])")
ln -s "$executorch" "$work/made/site/executorch"
mv "$work/made" "$work/moved"  # Relocatable: nothing may remember the first place.

cmake -G Ninja -S tests/package -B "$work/consumer" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$PWD/$work/moved/site/etrt" -DEXAMPLE="$PWD/examples/two_conversations.cpp" >"$work/configure.log" ||
  { cat "$work/configure.log"; exit 1; }
cmake --build "$work/consumer"
"$work/consumer/core_consumer"

models=build/dev/tests/delegate/models
[ -f "$models/tiny_decoder.pte" ] ||
  PYTHONPATH=python python tests/python/make_models.py "$models"
"$work/consumer/consumer" "$models/tiny_decoder.pte" 33 9 21 4 | tee "$work/output.txt"
[ "$(grep -c '^conversation 0' "$work/output.txt")" -eq 8 ]
[ "$(grep -c '^conversation 1' "$work/output.txt")" -eq 8 ]
# The two conversations started otherwise and must not say the same.
[ "$(grep '^conversation 0' "$work/output.txt" | cut -d: -f2)" != "$(grep '^conversation 1' "$work/output.txt" | cut -d: -f2)" ]
echo "1 passed, 0 failed"
