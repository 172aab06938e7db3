"""
The job `verify-offsets`: decides whether a broker can fail over now, and what would be repeated,
skipped or lost.
"""
