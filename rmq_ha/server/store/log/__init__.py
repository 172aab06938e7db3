"""The log: how records are appended, flushed and read, and where the log is cut.

Enter at `commitlog.CommitLog`; `append` lays records out, `flush` brings them to the disk,
`dispatch` gives new records to queues and index, and `recovery` finds the end after a stop.
"""
