"""The journal on one disk: how it begins after a stop, a crash or a loss, and how it is cut.

Enter at `journal.LocalJournal`, on which the two journals of `replication/` stand.
"""
