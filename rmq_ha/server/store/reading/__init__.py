"""What pulls and queries get, and which damaged records they are not given.

Enter at `reads.StoreReads`, the reading half of `DefaultMessageStore`; a pull is `pulls`.
"""
