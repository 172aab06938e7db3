"""Without pyspark and duckdb these files cannot be imported: they are skipped, and that is seen."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.unit.lake.spark.golden_stores import java as java

NEEDED = ("pyspark", "pyarrow", "numpy", "duckdb")


class _Skipped(pytest.Module):
    def collect(self) -> Any:
        pytest.skip("pip install 'rmq-ha[scan,spark]'", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    if all(find_spec(name) for name in NEEDED):
        return None
    skipped: pytest.Module = _Skipped.from_parent(parent, path=module_path)
    return skipped
