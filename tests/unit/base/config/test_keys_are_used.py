"""No key is taken and then ignored without a word."""

import re
from pathlib import Path

import rmq_ha
from rmq_ha.base.config.all_keys import CONFIG_CLASSES
from rmq_ha.base.config.fields import keys_of


def test_every_key_is_read() -> None:
    """A setting that nobody reads belongs into unserved_keys.py, so that its user is told."""
    package = Path(rmq_ha.__file__).parent
    sources = [path for path in package.rglob("*.py") if path.parent.name != "config"]
    sources += [
        package / "base" / "config" / name
        for name in ("controller_mode_keys.py", "journal.py", "load.py", "load_controller.py")
    ]
    read = {name for path in sources for name in re.findall(r"\.(\w+)", path.read_text())}
    ignored = [
        name
        for each in CONFIG_CLASSES
        for name, row in keys_of(each).items()
        if row.attribute not in read
    ]
    assert ignored == []
