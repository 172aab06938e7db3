"""The job verify-replica: a slave's log against its master's, and each store against itself."""
