"""
Reads a store on the disk, whether its broker runs or not.

Enter by `directory`, which opens a store. `rmq_ha.ops.checks.verify` compares log, queues, index
and tables. Stores are read and never written; only `backup.restore` writes, and makes a new store.
Plain Python: no numpy, no Twisted.
"""
