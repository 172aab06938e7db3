#!/usr/bin/env bash
# Tests on another Spark than the installed one: on_spark.sh VERSION PYTEST-ARGUMENTS...
# RMQ_HA_SPARK_LAKE=delta brings Delta Lake's jars, too. Python is RMQ_HA_PYTHON, else `python`; of its packages only
# pyspark is another one. Spark's source package is unpacked, and no wheel is built of it: that takes 40 s of a processor.
# What was downloaded stays in RMQ_HA_SPARKS (~/.cache/rmq-ha-spark), 0.5 GB a version.
set -euo pipefail
version="$1"
shift
python="${RMQ_HA_PYTHON:-python}"
sparks="${RMQ_HA_SPARKS:-${XDG_CACHE_HOME:-$HOME/.cache}/rmq-ha-spark}"
mkdir -p "$sparks"
new="$(mktemp -d "$sparks/new.XXXXXX")"
trap 'rm -rf "$new"' EXIT

spark="$sparks/pyspark-$version"
if [ ! -d "$spark" ]; then
  "$python" -m pip download -q --no-deps --no-binary pyspark -d "$new" "pyspark==$version"
  tar -xzf "$new/pyspark-$version.tar.gz" -C "$new"
  mv -T "$new/pyspark-$version" "$spark" 2>/dev/null || [ -d "$spark" ]
fi
if [ "${RMQ_HA_SPARK_LAKE:-parquet}" = delta ]; then
  export RMQ_HA_SPARK_JARS="$sparks/delta"
  if [ ! -d "$RMQ_HA_SPARK_JARS" ]; then
    bash "$(dirname "$0")/lake_jars.sh" "$new/delta"
    mv -T "$new/delta" "$RMQ_HA_SPARK_JARS" 2>/dev/null || [ -d "$RMQ_HA_SPARK_JARS" ]
  fi
fi
export SPARK_HOME="$spark/deps" PYTHONPATH="$spark${PYTHONPATH:+:$PYTHONPATH}"
"$python" -c "import pyspark; assert pyspark.__version__ == '$version', pyspark.__version__; print('Spark', pyspark.__version__)"
# CI runs this beside other tests: only one may keep the list of failed tests.
"$python" -m pytest -p no:cacheprovider --ring all -n0 "$@"
