#!/usr/bin/env bash
# Tests on another Spark than the installed one: on_spark.sh VERSION PYTEST-ARGUMENTS...
# RMQ_HA_SPARK_LAKE=delta brings Delta Lake's jars, too. Python is RMQ_HA_PYTHON, else `python`; of its packages only
# pyspark is another one. Its wheel is made of a source package and unpacked at once, so it is not compressed: that would
# take 17 s of a processor. Where uv is beside Python, it installs in 11 s of a processor, else pip does in 25 s.
# What was downloaded stays in RMQ_HA_SPARKS (~/.cache/rmq-ha-spark), 0.5 GB a version.
set -euo pipefail
version="$1"
shift
python="${RMQ_HA_PYTHON:-python}"
sparks="${RMQ_HA_SPARKS:-${XDG_CACHE_HOME:-$HOME/.cache}/rmq-ha-spark}"
mkdir -p "$sparks"
new="$(mktemp -d "$sparks/new.XXXXXX")"
trap 'rm -rf "$new"' EXIT

spark="$sparks/spark-$version"
if [ ! -d "$spark" ]; then
  install=("$python" -m pip install) uv="$(dirname "$(command -v "$python")")/uv"
  if [ -x "$uv" ]; then install=("$uv" pip install --python "$python"); fi
  printf '[bdist_wheel]\ncompression = stored\n' >"$new/wheels.cfg"
  DIST_EXTRA_CONFIG="$new/wheels.cfg" "${install[@]}" -q --no-deps --target "$new/spark" "pyspark==$version"
  mv -T "$new/spark" "$spark" 2>/dev/null || [ -d "$spark" ]
fi
if [ "${RMQ_HA_SPARK_LAKE:-parquet}" = delta ]; then
  export RMQ_HA_SPARK_JARS="$sparks/delta"
  if [ ! -d "$RMQ_HA_SPARK_JARS" ]; then
    bash "$(dirname "$0")/lake_jars.sh" "$new/delta"
    mv -T "$new/delta" "$RMQ_HA_SPARK_JARS" 2>/dev/null || [ -d "$RMQ_HA_SPARK_JARS" ]
  fi
fi
export SPARK_HOME="$spark/pyspark" PYTHONPATH="$spark${PYTHONPATH:+:$PYTHONPATH}"
"$python" -c "import pyspark; assert pyspark.__version__ == '$version', pyspark.__version__; print('Spark', pyspark.__version__)"
# CI runs this beside other tests: only one may keep the list of failed tests.
"$python" -m pytest -p no:cacheprovider --ring all -n0 "$@"
