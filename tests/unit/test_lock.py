"""What a release is installed with (`tox -e lock`): everything that is needed, and by its hash."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PINNED = re.compile(
    r"^([\w.-]+)==(\S+)(?: ;[^\\\n]*)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", re.M
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDED = {
    "release.txt": [*PROJECT["dependencies"], *EXTRAS["compression"]],
    "spark.txt": [*PROJECT["dependencies"], *EXTRAS["spark"]],
    "build.txt": (ROOT / "requirements/build.in").read_text().split(),
}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", NEEDED)
def test_everything_is_locked_in_versions_that_we_take(name: str) -> None:
    """Who changes pyproject.toml runs `tox -e lock`."""
    text = (ROOT / "requirements" / name).read_text()
    found: dict[str, list[str]] = {}
    for package, version in PINNED.findall(text):
        found.setdefault(canonical(package), []).append(version)
    pinned = sum(map(len, found.values()))
    assert pinned == len(re.findall(r"^\w", text, re.M)), "a line without version and hash"
    for line in NEEDED[name]:
        wanted = Requirement(line)
        versions = found.get(canonical(wanted.name), [])
        assert versions, f"{name} lacks {line}"
        for version in versions:
            assert wanted.specifier.contains(version), f"{name}: {wanted.name} {version}, {line}"


def test_the_lock_names_no_index() -> None:
    """Where packages come from is everybody's own setting; what they are is not."""
    for path in (ROOT / "requirements").iterdir():
        assert "://" not in path.read_text(), path
