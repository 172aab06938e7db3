"""Can I fail over now? A master and its slaves compared, in plain Python."""
