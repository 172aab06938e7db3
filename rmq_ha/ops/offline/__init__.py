"""A store as it lies on the disk, its broker running or not: read, never written."""
