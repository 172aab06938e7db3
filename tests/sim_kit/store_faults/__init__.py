"""Makes stores with planted faults, to test the jobs that check stores."""
