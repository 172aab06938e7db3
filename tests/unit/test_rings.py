"""Which tests a run takes (`tests/kits/rings.py`), with a small suite of two rings."""

from pathlib import Path

import pytest

from tests.kits import rings

pytest_plugins = ["pytester"]

OPTIONS = ["--import-mode=importlib"]
OPTIONS += [f"-pno:{name}" for name in ("xdist", "twisted", "pytest_twisted", "asyncio", "rmqha")]
SUITE = {
    "java": "def test_java(): pass\n",
    "unit": "import pytest\ndef test_quick(): pass\n@pytest.mark.trials\ndef test_slow(): pass\n",
}


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest('pytest_plugins = ["tests.kits.rings"]')
    pytester.makeini(
        f"[pytest]\ntestpaths = all\npythonpath = {Path(__file__).parents[2]}\n"
        "rings =\n  peers: all/java\n"
    )
    for name, text in SUITE.items():
        folder = pytester.path / "all" / name
        folder.mkdir(parents=True)
        (folder / f"test_{name}.py").write_text(text)
    return pytester


@pytest.mark.parametrize(
    ("arguments", "taken"),
    [
        ([], ["quick"]),
        (["--ring", "peers"], ["java"]),
        (["--ring", "trials"], ["slow"]),
        (["--ring", "peers", "--ring", "inner"], ["java", "quick"]),
        (["--ring", "all"], ["java", "quick", "slow"]),
        (["all"], ["java", "quick", "slow"]),
        (["all/java"], ["java"]),
        (["all/unit/test_unit.py::test_slow"], ["slow"]),
        (["all/unit", "--ring", "trials"], ["slow"]),
    ],
)
def test_a_path_is_run_and_a_run_without_one_takes_the_inner_ring(
    suite: pytest.Pytester, arguments: list[str], taken: list[str]
) -> None:
    result = suite.inline_run(*OPTIONS, *arguments)
    passed, _, failed = result.listoutcomes()
    assert failed == []
    assert sorted(report.nodeid.rpartition("_")[2] for report in passed) == taken


def test_a_ring_whose_folder_has_another_name_now_is_refused(tmp_path: Path) -> None:
    for line, why in (("peers: gone", "gone is not there"), ("far: .", "'far' is not one of")):
        with pytest.raises(pytest.UsageError, match=why):
            rings.Rings(tmp_path, [line], [])


def test_a_run_says_which_rings_it_leaves_out(tmp_path: Path) -> None:
    inner = "\n".join(rings.Rings(tmp_path, [], [rings.INNER]).header())
    assert [name for name in rings.COMMANDS if f"tox -e {name}" in inner] == list(rings.COMMANDS)
    lake = "\n".join(rings.Rings(tmp_path, [], ["lake"]).header())
    assert "inner" in lake
    assert "tox -e lake" not in lake
    assert list(rings.Rings(tmp_path, [], [rings.ALL]).header()) == []
