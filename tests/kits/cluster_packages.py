"""Gives a Python exactly the packages that the Python of a cluster has."""

import sysconfig
from pathlib import Path

NAMES = (
    "pyspark", "py4j", "pyarrow", "pyarrow.libs", "numpy", "numpy.libs", "pandas", "pandas.libs",
    "dateutil", "pytz", "six.py", "tzdata",
)  # fmt: skip


def link_cluster_packages(site: Path) -> None:
    """Link the packages of this Python into a directory of another one."""
    here = Path(sysconfig.get_paths()["purelib"])
    for name in NAMES:
        if (here / name).exists():
            (site / name).symlink_to(here / name)
