"""The museum's room of delayed messages and transactions."""

from tests.museum.hanging import hang

test_exhibit = hang("delay_tx")
