"""Names of versions, against the list printed by Java 4.9.7. Spec: remoting.md, section 1.5."""

from pathlib import Path

import pytest

from rmq_ha.base.wire import versions
from rmq_ha.base.wire.codes import LanguageCode, language_name

NAMES = (
    (Path(__file__).parents[3] / "vectors" / "remoting" / "versions.txt").read_text().splitlines()
)


def test_all_names_are_those_of_java():
    assert [versions.version_name(ordinal) for ordinal in range(len(NAMES))] == NAMES


@pytest.mark.parametrize(
    "name",
    [name for name in vars(versions) if name.startswith("V") and name[1].isdigit()],
)
def test_constants_have_their_ordinals(name):
    assert NAMES[getattr(versions, name)] == name


def test_ordinals_beyond_the_list_are_clamped():
    assert versions.version_name(99999) == "HIGHER_VERSION"
    assert versions.version_name(-1) == NAMES[0]


def test_languages_by_name_and_ordinal():
    assert language_name("GO") == language_name(9) == "GO"
    assert language_name("X") is language_name(13) is language_name(None) is None
    assert LanguageCode.RUST == 12
