"""Packs rmq-ha into one zip, for executors on which it is not installed."""

import os
import zipfile
from pathlib import Path

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
            for path in sorted(root.rglob("*")):
                inner = path.relative_to(root.parent)
                if not path.is_file() or path.suffix == ".pyc" or _LEFT_OUT & set(inner.parts):
                    continue
                name = str(inner)
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes())
                count += 1
        os.replace(unfinished, target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return count
