"""The reading of messages for pulls and queries, without damaged records.

Enter at `reads.StoreReads`, the reading half of `DefaultMessageStore`; a pull is in `pulls`.
"""
