"""The job `verify-offsets`: can I fail over now, and what would be repeated, skipped or lost?"""
