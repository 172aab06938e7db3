"""The log: how records get into it and to the disk, what is read of it, and where it is cut.

Enter at `commitlog.CommitLog`; `append` lays records out, `flush` brings them to the disk,
`dispatch` hands what is new to queues and index, `recovery` finds the end after a stop.
"""
