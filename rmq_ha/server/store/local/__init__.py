"""The journal on one disk: its recovery after a stop, a crash or a loss, and its cuts.

Enter at `journal.LocalJournal`; the two journals of `replication/` extend it.
"""
