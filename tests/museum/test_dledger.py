"""The museum's room of DLedger groups."""

from hanging import hang

test_exhibit = hang("dledger")
