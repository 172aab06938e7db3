#!/usr/bin/env bash
# Delta Lake's jars into a directory, by Maven from wherever its settings say.
set -euo pipefail
into="$1"
if ! command -v mvn >/dev/null; then
  echo "tox -e delta needs Maven (mvn), which brings Delta Lake's jars" >&2
  exit 1
fi
for artifact in io.delta:delta-spark_4.2_2.13:4.4.0 io.delta:delta-storage:4.4.0 io.delta:delta-kernel-api:4.4.0 \
  io.delta:delta-kernel-defaults:4.4.0 io.delta:delta-kernel-unitycatalog:4.4.0 io.unitycatalog:unitycatalog-client:0.6.0; do
  mvn -q -B dependency:copy -Dartifact="$artifact" -DoutputDirectory="$into" || {
    echo "Maven cannot get $artifact: without it there is no test with Delta Lake" >&2
    exit 1
  }
done
