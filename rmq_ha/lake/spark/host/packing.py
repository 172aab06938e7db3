"""
Packs rmq-ha into one zip, for executors on which it is not installed.

The zip also has `pyspark_rocketmq`, by which Spark finds the format, and msgspec, which clusters do
not have. msgspec is compiled, and Python imports compiled modules from files only. So the zip's
module `msgspec` first unpacks the real one into the temporary directory of the machine.
"""

import os
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

import rmq_ha

# Parts that Spark's executors and drivers never import.
_LEFT_OUT = frozenset(("testing", "app", "__pycache__"))
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_zip(file: str) -> int:
    """
    Write the package as a zip for `spark-submit --py-files`.

    The same sources give the same bytes.

    :param file: the target; it is replaced when the new one is complete.
    :returns: the number of files in it.
    :raises OSError: the file cannot be written, or rmq-ha itself runs from a zip.
    """
    target = Path(file)
    root = Path(rmq_ha.__file__).parent
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is no directory: this rmq-ha runs from a zip already")
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.new")
    count = 0
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in _contents(root):
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, data)
                count += 1
        os.replace(unfinished, target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return count


_UNPACKED = "rmqha_compiled"
_UNPACK = f'''
"""Unpacks the compiled msgspec of the zip, and takes its place."""

import sys
import tempfile
import zipfile
from importlib import import_module
from pathlib import Path

archive = __loader__.archive
with zipfile.ZipFile(archive) as packed:
    names = [name for name in packed.namelist() if name.startswith("{_UNPACKED}/")]
    mark = format(sum(packed.getinfo(name).CRC for name in names), "x")
    place = Path(tempfile.gettempdir()) / f"rmqha-{{mark}}"
    if not place.is_dir():
        with tempfile.TemporaryDirectory(dir=place.parent) as unfinished:
            packed.extractall(unfinished, names)
            try:
                Path(unfinished, "{_UNPACKED}").rename(place)
            except OSError:
                pass  # another process was sooner
sys.path.insert(0, str(place))
del sys.modules["msgspec"]
import_module("msgspec")
'''


def _contents(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and bytes of the files of the zip."""
    for path in sorted(root.rglob("*")):
        inner = path.relative_to(root.parent)
        if path.is_file() and path.suffix != ".pyc" and not _LEFT_OUT & set(inner.parts):
            yield str(inner), path.read_bytes()
    finder = find_spec("pyspark_rocketmq")
    if finder is not None and finder.origin is not None:
        yield "pyspark_rocketmq.py", Path(finder.origin).read_bytes()
    compiled = Path(msgspec.__file__).parent
    for path in sorted(compiled.iterdir()):
        if path.is_file() and path.suffix != ".pyi":
            yield f"{_UNPACKED}/msgspec/{path.name}", path.read_bytes()
    yield "msgspec.py", _UNPACK.encode()
