"""Which Java is taken, and what is said when there is none."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.lake.spark.host import java
from rmq_ha.lake.spark.host.java import NoJava, find_java

VECTOR = "jdk.incubator.vector"


def made(home: Path, version: str, modules: str = f"java.base {VECTOR}") -> Path:
    """A Java that says which one it is, and prints how it is called."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def test_the_variable_of_rmq_ha_wins_then_java_home_then_the_path(tmp_path: Path) -> None:
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
    ):
        found = find_java(environ)
        assert (found.source, found.home) == (source, home)
        environ.pop(source, None)


def test_one_that_is_too_old_is_passed_over_and_named(tmp_path: Path) -> None:
    old, good = made(tmp_path / "old", "1.8.0_412"), made(tmp_path / "good", "21.0.8")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")})
    assert (found.source, found.version) == ("PATH", 21)
    assert found.passed_over == (f"JAVA_HOME: {old} is Java 8, older than 17",)


def test_no_java_at_all_says_what_to_install() -> None:
    with pytest.raises(NoJava, match=r"no JAVA_HOME, no `java` on the PATH.*install a JDK"):
        find_java({})


def test_only_unfit_ones_are_each_named(tmp_path: Path) -> None:
    old = made(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava) as caught:
        find_java({"JAVA_HOME": "/nowhere", "PATH": str(old / "bin")})
    assert "JAVA_HOME: /nowhere has no bin/java" in str(caught.value)
    assert f"PATH: {old} is Java 11, older than 17" in str(caught.value)


def test_the_one_meant_for_us_has_to_fit(tmp_path: Path) -> None:
    old = made(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava, match=r"RMQ_HA_JAVA_HOME: .* is Java 11.*set it to another"):
        find_java({"RMQ_HA_JAVA_HOME": str(old)})


@pytest.mark.parametrize(
    ("says", "version"), [("java.version = 21.0.4", 21), ("java.version = 17-ea", 17)]
)
def test_without_a_release_file_it_is_asked(tmp_path: Path, says: str, version: int) -> None:
    home = made(tmp_path / "java", "1")
    (home / "release").unlink()
    (home / "bin" / "java").write_text(f'#!/bin/sh\necho "    {says}" >&2\n')
    assert find_java({"JAVA_HOME": str(home)}).version == version


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
    assert (found.version, waits) == (17, [30])


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/nowhere/at-all\n"])
def test_one_that_says_nothing_is_unfit(tmp_path: Path, script: str) -> None:
    home = made(tmp_path / "java", "1")
    (home / "release").unlink()
    (home / "bin" / "java").write_text(script)
    with pytest.raises(NoJava, match=r"JAVA_HOME: .*(does not say|does not run)"):
        find_java({"JAVA_HOME": str(home)})


def test_a_java_without_the_module_that_spark_asks_for_is_passed_over(tmp_path: Path) -> None:
    small = made(tmp_path / "small", "21.0.8", "java.base")
    with pytest.raises(NoJava, match=r"JAVA_HOME: .*small lacks the module jdk\.incubator\.vector"):
        find_java({"JAVA_HOME": str(small)})
