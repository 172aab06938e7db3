"""A store as a table: scans and Spark jobs."""
