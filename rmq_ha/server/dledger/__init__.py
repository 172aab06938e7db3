"""DLedger mode: a commit log that a Raft group agrees on, together with Java members."""
