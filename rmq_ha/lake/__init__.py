"""A store as a table: scans in numpy and Arrow, and the jobs of Spark.

`scan` reads and judges stores without Spark; `spark` has executors run it. Nothing here imports
Twisted, because Spark forks its workers and pickles what they run.
"""
