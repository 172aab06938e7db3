"""Commit logs as columns: records are found and read with numpy, and leave as Arrow batches."""
