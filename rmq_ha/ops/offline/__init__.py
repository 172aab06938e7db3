"""A store as it lies on the disk, whether its broker runs or not.

Enter by `directory`, which opens a store, and `verify`, which compares log, queues, index and
tables.
Stores are read and never written, but for `backup.restore`, which makes a new one. Plain Python:
no numpy, no Twisted.
"""
