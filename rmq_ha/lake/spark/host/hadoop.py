"""An output directory that Spark reaches by Hadoop."""

from typing import Any

from pyspark.sql import SparkSession

from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.spark.host.output import FINDINGS_DIRECTORY, SUMMARY


class HadoopPlace:
    """An output directory on any file system that Spark knows."""

    def __init__(self, directory: str, spark: SparkSession) -> None:
        self._directory = directory.rstrip("/")
        jvm: Any = spark.sparkContext._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._files: Any = self._path(directory).getFileSystem(configuration)

    def _uri(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def begin(self) -> None:
        """Create the directory, and remove the summary of an earlier run."""
        self._files.mkdirs(self._path(self._directory))
        self._files.delete(self._path(self._uri(SUMMARY)), False)

    def write(self, name: str, text: str) -> None:
        """Write a file, which has another name until it is complete."""
        unfinished = self._path(self._uri(f".{name}.new"))
        stream = self._files.create(unfinished, True)
        stream.write(bytearray(text.encode("utf-8", "replace")))
        stream.close()
        self._files.delete(self._path(self._uri(name)), False)
        self._files.rename(unfinished, self._path(self._uri(name)))

    def save_findings(self, findings: DataFrame, few: Any) -> None:
        self.save(FINDINGS_DIRECTORY, findings)

    def save(self, name: str, frame: DataFrame) -> None:
        frame.save(self._uri(name))
