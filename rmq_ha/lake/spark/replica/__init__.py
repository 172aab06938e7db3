"""The job verify-replica: compares a slave's log with its master's, and each store with itself."""
