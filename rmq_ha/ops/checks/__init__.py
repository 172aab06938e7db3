"""
Compares a store with itself: its log, queues, index, checkpoint and tables.

Enter by `verify`, which does this in plain Python. `codes` has the codes of findings, `store_rules`
the rules about a store as a whole. `rmq_ha.lake.scan.replica` uses these two for pairs of stores,
and reads many records at once with numpy.
"""
