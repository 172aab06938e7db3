"""From a queue to a listener, or to whoever polls; and what a group's members agree on.

Enter at `push_consumer` and `lite_pull_consumer`.
"""
