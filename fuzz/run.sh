#!/usr/bin/env bash
# Runs the fuzzer for SECONDS (default 30) from the seeds in fuzz/corpus; non-zero if it finds
# something, which is then in build/fuzz/found.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-30}
work=build/fuzz/corpus
mkdir -p "$work" build/fuzz/found
build/fuzz/fuzz/blob_fuzzer -max_total_time="$seconds" -max_len=8192 -timeout=5 -rss_limit_mb=2048 \
  -dict=fuzz/blob.dict -artifact_prefix=build/fuzz/found/ -print_final_stats=1 -verbosity=0 "$work" fuzz/corpus
