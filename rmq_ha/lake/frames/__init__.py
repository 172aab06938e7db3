"""
Frames: the part of Spark's DataFrame interface in which the jobs' rules are written.

A rule says `frame.where(F.col("n") > 1)` once. Spark runs it for many and large stores
(`rmq_ha.lake.spark.host.engine`), and DuckDB runs it in this process for small ones
(`rmq_ha.lake.spark.host.duck`), without Java. The names and meanings are those of `pyspark.sql`.
"""
