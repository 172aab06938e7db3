"""The tests are tested: faults that were missed once are caught, and the planting plants."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import rules, run

HERE = Path(__file__).parent


def found(tmp_path, monkeypatch, text):
    """What the rules find in a module with this text."""
    monkeypatch.setattr(rules, "PACKAGE", tmp_path)
    (tmp_path / "it.py").write_text(text, encoding="utf-8")
    return rules.Module(tmp_path / "it.py")


def test_every_fault_of_the_list_is_caught():
    """By the tests under whose name it stands; each runs in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants.run", "--named", HERE / "planted.txt", "--terse"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_is_sampled_or_it_is_said_why_not():
    """A module without tests of its own would be left out of each sample, and nobody would know."""
    names = [path.relative_to(rules.PACKAGE).as_posix() for path in rules.PACKAGE.rglob("*.py")]
    unknown = [name for name in names if not run.tests_of(name) and not run.why_not(name)]
    assert unknown == []
    tests = {name for row in run.TESTS for name in run.tests_of(row)}
    assert [name for name in tests if not (run.ROOT / name).exists()] == []
    rows = [*run.TESTS, *run.NOT_SAMPLED]
    assert [row for row in rows if not any(name.startswith(row) for name in names)] == []


def test_who_asks_for_what_is_not_sampled_is_told_why(capsys):
    for package, why in (("testing/", "judges the product"), ("nowhere/", "no such module")):
        with pytest.raises(SystemExit) as ended:
            run.main(["--package", package])
        assert ended.value.code == 2
        assert why in capsys.readouterr().err


def test_the_equivalent_ones_exist_have_a_reason_and_are_few():
    """A name that no longer fits hides nothing, but would hide the next fault of that name."""
    listed = list(run.read_names(run.EQUIVALENT))
    assert len(listed) <= 400  # of 43,900 faults: below one in a hundred, as when there were fewer
    assert all(reason for _, _, reason in listed)
    known = {
        fault.name
        for module in rules.modules(sorted({name.split()[0] for _, name, _ in listed}))
        for fault in module.faults
    }
    assert [name for _, name, _ in listed if name not in known] == []


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        ("return a < b", {"a < b => a <= b"}),
        ("return a is None", {"a is None => a is not None"}),
        ("return a and b", {"a and b => a or b"}),
        ("return max(a, b)", {"max(a, b) => min(a, b)"}),
        ("return a[b:]", {"a[b:] => a[b + 1:]"}),
        ("return a + b", {"a + b => a - b"}),
        ("return a + 'b'", set()),
        ("return b(a, 3)", {"3 => 4 (b(a, 3))"}),
        ("return b(c=True)", {"True => False (c=)"}),
        ("a.sync()", {"a.sync() => pass"}),
        ("a.b = True", {"a.b = True => pass"}),
        ("a.log.info('b', 1)", set()),
        ("raise ValueError(1)", {"raise ValueError(1) => pass"}),
        ("for c in a: c.sync()", {"c.sync() => pass", "for c in a => once"}),
        ("if a: return b", {"if a: return b => pass", "a => not a"}),
        ("if not a: b()", {"not a => a", "b() => pass"}),
    ],
)
def test_rules(tmp_path, monkeypatch, body, changes):
    module = found(tmp_path, monkeypatch, f"def f(a, b):\n    {body}\n")
    assert {fault.change for fault in module.faults} == changes
    for fault in module.faults:
        module.compile(fault)


def test_a_name_outlives_a_reformat_and_another_name_of_a_local_variable(tmp_path, monkeypatch):
    """It does not outlive one such operator more: then somebody has to say which one is meant."""
    before = "def f(self, a):\n    b = self.size(a)\n    self.c.sync()\n    return 0 < b < a\n"
    after = (
        "def f(\n    self, first\n):\n    size = self.size(\n        first\n    )\n"
        "    self.c.sync()\n    return (0 < size\n        < first)\n"
    )
    names = [fault.name for fault in found(tmp_path, monkeypatch, before).faults]
    assert names == [
        "it.py f: drop sync",
        "it.py f: edge < 1/2",
        "it.py f: edge < 2/2",
        "it.py f: one 0",
    ]
    assert [fault.name for fault in found(tmp_path, monkeypatch, after).faults] == names
    more = found(tmp_path, monkeypatch, before + "    self.d.sync()\n")
    assert "it.py f: drop sync" not in {fault.name for fault in more.faults}


def test_a_list_that_fits_no_more_is_told_what_there_is(tmp_path, capsys):
    (tmp_path / "list").write_text("[tests]\nserver/store/log/flush.py _sync_all: sign +\n")
    with pytest.raises(SystemExit) as ended:
        run.main(["--named", str(tmp_path / "list")])
    assert ended.value.code == 2
    assert "_sync_all: sign +'. That function has: once, drop sync" in capsys.readouterr().out


def test_what_is_planted_is_taken_out_again(tmp_path, monkeypatch):
    """Each code has its own fault and no other; the file is not touched."""
    text = "def f(a):\n    b = a[0]\n    return (b + 1, a[1] < 5)\n"
    module = found(tmp_path, monkeypatch, text)
    sound = ast.dump(module._tree)
    outcomes = {}
    for fault in module.faults:
        names = {}
        exec(module.compile(fault), names)
        outcomes[fault.change] = names["f"]([3, 5, 9])
    assert outcomes == {
        "a[0] => a[-1]": (10, False),
        "b + 1 => b - 1": (2, False),
        "1 => 2 (b + 1)": (5, False),
        "a[1] < 5 => a[1] <= 5": (4, True),
        "1 => 2 (a[1])": (4, False),
        "5 => 6 (a[1] < 5)": (4, True),
    }
    assert ast.dump(module._tree) == sound
    assert (tmp_path / "it.py").read_text(encoding="utf-8") == text


def test_a_function_that_exists_gets_the_faulty_code(tmp_path, monkeypatch):
    """Also one that was decorated before."""
    text = "class A:\n    @property\n    def edge(self):\n        return 5 < 5\n"
    module = found(tmp_path, monkeypatch, text)
    names = {}
    exec(compile(text, str(module.path), "exec"), names)
    it = names["A"]()
    assert not it.edge
    (fault,) = (fault for fault in module.faults if fault.rule == "edge")
    run.Patches().apply(module.compile(fault))
    assert it.edge
