"""docs/reference/settings.md has a row for every key, as the key's declaration has it."""

from rmq_ha.base.config.all_keys import ALL_KEYS
from rmq_ha.base.config.unserved_keys import UNSERVED
from tests.unit.base.config.document import DOCUMENT, TABLES, as_it_has_to_be

TEXT = DOCUMENT.read_text()


def test_the_tables_are_those_of_the_rows() -> None:
    """`python -m tests.unit.base.config.document` writes them."""
    assert as_it_has_to_be(TEXT) == TEXT


def test_every_table_is_in_the_document() -> None:
    assert [name for name in TABLES if f"<!-- table: {name} -->" not in TEXT] == []


def test_every_key_is_in_the_document() -> None:
    silent = {name for name, row in UNSERVED.items() if not row.why}
    assert [key for key in ALL_KEYS.keys() - silent if f"`{key}`" not in TEXT] == []
