"""The museum's room of DLedger groups."""

from tests.museum.hanging import hang

test_exhibit = hang("dledger")
