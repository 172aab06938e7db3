#!/usr/bin/env bash
# Delta Lake's jars into a directory, by Maven from wherever its settings say.
set -euo pipefail
into="$1"
if ! command -v mvn >/dev/null; then
  echo "Delta Lake's jars come by Maven (mvn), which is not on the PATH" >&2
  exit 1
fi
pom="$(mktemp -d)"
trap 'rm -rf "$pom"' EXIT
{
  echo '<project><modelVersion>4.0.0</modelVersion><groupId>rmq-ha</groupId><artifactId>jars</artifactId><version>1</version><dependencies>'
  for artifact in io.delta:delta-spark_4.2_2.13:4.4.0 io.delta:delta-storage:4.4.0 io.delta:delta-kernel-api:4.4.0 \
    io.delta:delta-kernel-defaults:4.4.0 io.delta:delta-kernel-unitycatalog:4.4.0 io.unitycatalog:unitycatalog-client:0.6.0; do
    IFS=: read -r group name version <<<"$artifact"
    # Spark has what these need: without the exclusion Maven fetches another Spark.
    echo "<dependency><groupId>$group</groupId><artifactId>$name</artifactId><version>$version</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
  done
  echo '</dependencies></project>'
} >"$pom/pom.xml"
mvn -q -B -f "$pom/pom.xml" dependency:copy-dependencies -DoutputDirectory="$into" || {
  echo "Maven cannot get Delta Lake's jars: without them there is no test with Delta Lake" >&2
  exit 1
}
