"""The report of a job, for people."""
