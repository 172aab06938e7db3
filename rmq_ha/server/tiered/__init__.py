"""Tiered storage: sealed files of the log in an object store, and reads of their messages.

A file of the log is sealed when the log goes on in the next file. The master copies each sealed
file into the object store, with an index of its messages. Then `fileReservedTime` may delete the
local file, and consumers still read its messages. Together, the copies are called the tier.

Read `segments.py` first: it says which objects there are. `plugin.py` puts the parts around a
store. A message is deleted from this machine only when the tier has it.
"""
