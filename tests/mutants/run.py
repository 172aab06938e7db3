"""Plants one-line faults into rmq_ha and says which ones the unit tests catch: `tox -e mutants`.

One pytest a package collects its tests once and is then forked for each fault: the child puts the
faulty code into the functions that are already imported and runs the tests that come to the changed
function until one fails, those of its own module first, then the quickest. No file is touched, and
a fault costs what its first failing test costs. Neither mutmut nor cosmic-ray fits: the one works
on a copy of the tree, the other starts the tests anew for each fault, and neither leaves out a
statement, which is what weakens a disk: a `sync`, a mark "dirty", a place in a list of waiters.

    python -m tests.mutants.run --package server/store --package server/dledger --sample 80
    python -m tests.mutants.run --since main --jobs 2
    python -m tests.mutants.run --named tests/mutants/planted.txt

The first run of all tests, which finds out what each one reaches, takes most of the time of a small
sample. `--survey FILE` keeps what it found for the next sample, which then runs only new tests so.

The exit code is 1 when a fault survives, 2 when a list names one that no longer fits or when
nothing is planted in what `--package` names.
"""

import argparse
import gc
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from cProfile import Profile
from importlib import import_module
from itertools import accumulate
from math import inf
from pathlib import Path
from types import CodeType, FunctionType

from tests.mutants.rules import PACKAGE, Fault, Module, modules

ROOT = PACKAGE.parent
EQUIVALENT = Path(__file__).parent / "equivalent.txt"
CAUGHT, SURVIVED, NOT_REACHED = "caught", "SURVIVED", "NOT REACHED"

# Where the tests of a module are; the longest prefix wins.
TESTS = {
    "base/acl/": ["server/acl", "server/broker/test_signatures.py"],
    "base/store_files.py": ["ops/offline", "lake/spark"],
    "base/store_flags.py": ["server/store"],
    "base/store_format/": ["server/store", "server/dledger"],
    "base/store_format/java_timers.py": ["base/test_java_timers.py"],
    "base/runs/": ["base/runs", "server/store", "server/broker/test_send_runs.py"],
    "server/acl/": [
        "server/acl",
        "server/broker/test_acl_broker.py",
        "server/broker/test_acl_table.py",
        "server/broker/test_rotation.py",
        "server/broker/test_signatures.py",
        "server/namesrv/test_access.py",
    ],
    "ops/admin/": ["ops/admin"],
    "ops/admin/snapshot.py": ["ops/offsets/test_verify_offsets_command.py", "ops/admin"],
    "ops/app/": [
        "ops/app",
        "../page/test_api.py",
        "../page/test_other_boards.py",
        "../page/test_sheets.py",
        "server/broker/test_metrics.py",
        "server/broker/test_metrics_dledger.py",
        "server/namesrv/test_access.py",
        "base/remoting/test_tls_servers.py",
        "base/tls/test_tls_files.py",
    ],
    "ops/app/live_check.py": ["ops/admin/doctor"],
    "ops/app/namesrv_part.py": [
        "server/replication/epochs/test_controllers_in_name_servers.py",
        "ops/app",
    ],
    "server/broker/": ["server/broker"],
    "client/": ["client"],
    "client/lookup/administration.py": ["ops/admin"],
    "client/lookup/brokers.py": ["ops/admin"],
    "client/lookup/timers.py": ["ops/admin"],
    "base/config/": ["base/config"],
    "server/controller/": ["server/controller"],
    "server/dledger/": ["server/dledger"],
    "base/errors.py": ["client/test_errors.py", "base/filter", "server/replication", "base/tls"],
    "base/filter/": ["base/filter"],
    "server/door.py": ["server/grpc/front", "server/broker"],
    "server/grpc/": ["server/grpc"],
    "server/pop/": ["server/pop"],
    "server/replication/": ["server/replication"],
    "server/tiered/": ["server/tiered"],
    "server/replication/classic/journal.py": [
        "server/store/test_journals.py",
        "server/replication",
    ],
    "base/host/": ["base/host", "../contract"],
    "base/host/files.py": ["lake/spark/test_files.py"],
    "base/host/std_logging.py": ["client/test_std_logging.py"],
    "base/model/": ["base/model"],
    "server/namesrv/": ["server/namesrv"],
    "ops/checks/": ["ops/checks", "lake/scan", "ops/admin/test_store.py"],
    "ops/offline/": [
        "ops/offline",
        "ops/admin/test_backup_command.py",
        "ops/admin/test_store.py",
        "server/broker/test_backup.py",
        "ops/offsets",
        "lake/spark",
    ],
    "ops/offsets/": ["ops/offsets", "lake/spark"],
    "base/persisted_table.py": ["base/test_persisted.py"],
    "testing/playground.py": ["testing/test_playground.py"],
    "server/plugins.py": ["ops/app"],
    "base/properties_file.py": ["base/config"],
    "base/remoting/": ["base/remoting", "base/tls/test_tls_remoting.py"],
    "base/remoting/audit.py": ["server/broker/test_audit.py"],
    "lake/scan/": ["lake/scan", "lake/spark"],
    "base/spans.py": ["base/test_spans.py"],
    "lake/spark/": ["lake/spark"],
    "lake/frames/": ["lake/spark"],
    "server/store/": ["server/store"],
    "base/timing/": ["base/timing"],
    "base/tls/": ["base/tls", "base/remoting", "server/replication"],
    "base/tls/std_session.py": ["client/test_tls_client.py"],
    "base/wire/": ["base/wire"],
}
# What no sample plants anything in, and why. Every other module has a row above.
NOT_SAMPLED = {
    "errors.py": "it names what lies in base/errors.py",
    "interfaces.py": "it names what lies in base/interfaces.py",
    "__init__.py": "it has the version and nothing else",
    "ops/app/demo.py": "real processes play it (tests/live/test_demo.py): no fault reaches them",
    "base/interfaces.py": "it says what others do",
    "base/seams.py": "it says what others do",
    **dict.fromkeys([f"{h}/__init__.py" for h in ("base", "server", "ops", "lake")], "a docstring"),
    **dict.fromkeys(
        (
            "lake/spark/archive/job.py",
            "lake/spark/archive/replay.py",
            "lake/spark/audit/delays.py",
            "lake/spark/audit/delivery.py",
            "lake/spark/audit/halves.py",
            "lake/spark/audit/job.py",
            "lake/spark/audit/keys.py",
            "lake/spark/audit/ledgers.py",
            "lake/spark/audit/losses.py",
            "lake/spark/audit/queues.py",
            "lake/spark/audit/reduction.py",
            "lake/spark/audit/shape.py",
            "lake/spark/audit/windows.py",
            "lake/spark/offsets/history.py",
            "lake/spark/offsets/job.py",
            "lake/spark/replica/job.py",
            "lake/spark/host/engine.py",
        ),
        "it makes plans, which only a session of Spark runs (tests/spark): a fault would cost one",
    ),
    "testing/": "it judges the product: faults planted in brokers and peers say whether it can "
    "(tests/sim_kit/mutants.py)",
}
GIB = 1 << 30
_ENDS = {
    signal.SIGPROF: "by hanging",  # its own time: how loaded the machine is has no say in it
    signal.SIGALRM: "by waiting",
}
_INNER = re.compile(r"(\.<locals>)?\.<(?!locals)\w+>.*")  # lambdas and comprehensions


def tests_of(module: str) -> tuple[str, ...]:
    """The folders and files of a module's unit tests; none for what is not sampled."""
    if why_not(module):
        return ()
    prefixes = [prefix for prefix in TESTS if module.startswith(prefix)]
    found = TESTS[max(prefixes, key=len)] if prefixes else []
    return tuple(os.path.normpath(f"tests/unit/{name}") for name in found)


def why_not(module: str) -> str:
    """Why no fault is planted in a module; empty: some are."""
    return next((why for prefix, why in NOT_SAMPLED.items() if module.startswith(prefix)), "")


def read_names(path: Path) -> Iterator[tuple[str, str, str]]:
    """
    What a list names: the tests of its section (`[tests/unit/...]`), the fault, and why.

    The reason stands behind `  # `.
    """
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, reason = line.partition("  # ")
            yield section, name.strip(), reason


def changed_lines(revision: str) -> dict[str, set[int]]:
    """Module to the lines that differ from a revision."""
    command = ["git", "diff", "-U0", revision, "--", "rmq_ha"]
    diff = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found: dict[str, set[int]] = defaultdict(set)
    module = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            module = line.removeprefix("+++ b/rmq_ha/")
        elif match := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            first, size = int(match[1]), int(match[2] or 1)
            found[module].update(range(first, first + size))
    return found


class Patches:
    """Functions that exist now, by the code that they have; and another code for them."""

    def __init__(self) -> None:
        self._functions: dict[str, dict[tuple[str, int], list[FunctionType]]] = {}
        for function in gc.get_objects():
            if isinstance(function, FunctionType):
                code = function.__code__
                here = self._functions.setdefault(code.co_filename, {})
                here.setdefault((code.co_qualname, code.co_firstlineno), []).append(function)

    def apply(self, code: CodeType) -> None:
        """All functions of a module get what a new code of it says."""
        here = self._functions.get(code.co_filename, {})
        waiting = [code]
        while waiting:
            new = waiting.pop()
            waiting += [part for part in new.co_consts if isinstance(part, CodeType)]
            for function in here.get((new.co_qualname, new.co_firstlineno), []):
                function.__code__ = new


class Forks:
    """
    Runs in the place of a pytest session's loop: one child for each fault.

    :param faults: with their modules and, if somebody names them, their tests.
    :param tell: gets a fault, its verdict and the test that caught it.
    :param budget: seconds of tests, as the survey measured them, that one fault may cost.
    :param survey: a file that keeps what each test reaches, for those that it does not know yet.
    """

    def __init__(self, faults, jobs, tell, budget=inf, survey: Path | None = None) -> None:
        self._faults = faults
        self._jobs = jobs
        self._tell = tell
        self._budget = budget
        self._survey_file = survey
        self._running = {}

    def pytest_sessionstart(self) -> None:
        """Before the tests are imported: what hypothesis draws is the same each time."""
        from hypothesis import Phase, settings

        settings.register_profile(
            "mutants",
            settings.get_profile("rmq-ha"),
            database=None,
            derandomize=True,
            phases=(Phase.explicit, Phase.generate),
        )
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session) -> bool:
        """All tests are collected."""
        if session.testsfailed:
            raise SystemExit("the tests cannot be collected")
        with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
            self._scratch = Path(scratch)
            self._session = session
            reached, seconds = self._survey()
            for _, module, _ in self._faults:  # some are imported by their users only: plugins
                with suppress(ImportError):  # what is not installed is skipped, and not reached
                    import_module(module.dotted)
            gc.unfreeze()  # `tests/conftest.py` hides what was collected, and patches look for it
            self._patches = Patches()
            gc.freeze()  # else the collector of each child touches, and so copies, all of it
            for fault, module, section in self._faults:
                chosen = [
                    item
                    for item in session.items
                    if (
                        item.nodeid.startswith(section)
                        if section
                        else (module.path.as_posix(), fault.function) in reached[item.nodeid]
                    )
                ]
                if not chosen:
                    self._tell(fault, NOT_REACHED, "")
                    continue
                while len(self._running) >= self._jobs:
                    self._reap()
                work = [(item, seconds[item.nodeid]) for item in chosen]
                self._fork(fault, module.compile(fault), self._affordable(module, work))
            while self._running:
                self._reap()
        return True

    def _affordable(self, module: Module, work):
        """The tests of the module itself first, then the quickest, until the budget is spent."""
        stem = module.path.stem
        work.sort(key=lambda part: (stem not in part[0].path.stem, part[1]))
        spent = accumulate(seconds for _, seconds in work)
        return [part for part, sum_ in zip(work, spent, strict=True) if sum_ <= self._budget]

    def _survey(self):
        """One run of all tests without a fault: what each one reaches, and how long it takes."""
        if all(section for _, _, section in self._faults):
            return defaultdict(set), defaultdict(float)
        kept = self._survey_file
        known = json.loads(kept.read_text(encoding="utf-8")) if kept and kept.exists() else []
        found = self._scratch / "survey"
        child = os.fork()
        if not child:
            self._in_child(lambda: self._write_survey(found, known))
        if os.waitpid(child, 0)[1]:
            test = found.read_text(encoding="utf-8") if found.exists() else "a test"
            print(f"without any fault fails {test}", file=sys.stderr, flush=True)
            raise SystemExit(1)
        text = found.read_text(encoding="utf-8")
        if kept:
            kept.write_text(text, encoding="utf-8")
        lines = json.loads(text)
        reached = {test: {tuple(place) for place in places} for test, places, _ in lines}
        return reached, {test: seconds for test, _, seconds in lines}

    def _write_survey(self, found: Path, known) -> bool:
        lines = list(known)
        before = {test for test, _, _ in known}
        package = str(PACKAGE)
        for item in self._session.items:
            if item.nodeid in before:
                continue
            places = set()

            def trace(frame, event, arg, add=places.add):
                add(frame.f_code)

            calls = Profile(builtins=False)  # sees this thread at a tenth of what `trace` costs
            began = time.perf_counter()
            threading.settrace(trace)  # those that begin from now on
            gc.disable()  # collecting under the profiler, CPython 3.11 crashes now and then
            calls.enable()
            is_good = self._passes(item)
            calls.disable()
            gc.enable()
            threading.settrace(None)
            took = time.perf_counter() - began
            places.update(entry.code for entry in calls.getstats())
            if not is_good:
                found.write_text(item.nodeid, encoding="utf-8")
                return False
            ours = {
                (code.co_filename, _INNER.sub("", code.co_qualname))
                for code in tuple(places)  # threads of the test may still add some
                if code.co_filename.startswith(package)
            }
            lines.append((item.nodeid, sorted(ours), took))
        found.write_text(json.dumps(lines), encoding="utf-8")
        return True

    def _passes(self, item) -> bool:
        from _pytest.runner import runtestprotocol

        reports = runtestprotocol(item, nextitem=None, log=False)
        return not any(report.failed for report in reports)

    def _fork(self, fault: Fault, code: CodeType, items) -> None:
        place = Path(tempfile.mkdtemp(dir=self._scratch))
        child = os.fork()
        if not child:
            self._in_child(lambda: self._survives(code, items, place), place)
        self._running[child] = (fault, place)

    def _survives(self, code: CodeType, items, place: Path) -> bool:
        self._patches.apply(code)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + GIB, used + GIB))
        for item, seconds in items:
            (place / "test").write_text(item.nodeid, encoding="utf-8")
            # nobody handles these signals: a test that hangs, busy or asleep, ends the child
            signal.setitimer(signal.ITIMER_PROF, 1 + 3 * seconds)
            signal.setitimer(signal.ITIMER_REAL, 20 + 30 * seconds)
            if not self._passes(item):
                return False
        return True

    def _in_child(self, work, place: Path | None = None) -> None:
        """Never returns: the exit code is 0 when the work says yes."""
        code = 1
        try:
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silent, stream)
            os.setpgid(0, 0)
            if place is not None:
                self._session.config._tmp_path_factory._basetemp = place / "tmp"
                (place / "tmp").mkdir()
                os.chdir(place)
            code = 0 if work() else 1
        finally:
            os._exit(code)

    def _reap(self) -> None:
        """Wait for one child."""
        child, status = os.wait()
        fault, place = self._running.pop(child)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what the tests themselves started
        with suppress(OSError):
            test = (place / "test").read_text(encoding="utf-8")
        if os.WIFSIGNALED(status):
            test += f" ({_ENDS.get(os.WTERMSIG(status), 'it crashed')})"
        self._tell(fault, CAUGHT if status else SURVIVED, test if status else "")
        shutil.rmtree(place, ignore_errors=True)


class Table:
    """What was found, told as it comes, and by package at the end."""

    def __init__(self, is_terse: bool) -> None:
        self._is_terse = is_terse
        self.figures: dict[str, Counter[str]] = defaultdict(Counter)

    def tell(self, fault: Fault, verdict: str, test: str) -> None:
        """One line a fault; of those that were caught only if somebody wants them."""
        self.figures[fault.module.partition("/")[0]][verdict] += 1
        if verdict != CAUGHT or not self._is_terse:
            what = f"{verdict:11} {fault.line:4} {fault.name}: {fault.change}"
            print(f"{what}  <- {test}" if test else what, flush=True)

    def __str__(self) -> str:
        lines = [f"{'package':14} planted  caught  survived  not reached"]
        total = sum(self.figures.values(), Counter[str]())
        for package, found in [*sorted(self.figures.items()), ("all", total)]:
            planted = found.total()
            share = f"{found[CAUGHT] / planted:7.1%}" if planted else f"{'-':>7}"
            lines.append(
                f"{package:14} {planted:7} {share} {found[SURVIVED]:9} {found[NOT_REACHED]:12}"
            )
        return "\n".join(lines)


def run_group(paths: tuple[str, ...], faults, options, table: Table) -> None:
    """One session in a child of its own, so that the next one starts clean."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.close(receive)
        os.environ["PYTHONHASHSEED"] = "0"
        # Arrow's own pool begins with a GiB, which no child may have: its tests would fail so.
        os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
        out = os.fdopen(send, "w", encoding="utf-8")

        def tell(fault: Fault, verdict: str, test: str) -> None:
            number = next(i for i, known in enumerate(faults) if known[0] is fault)
            print(json.dumps((number, verdict, test)), file=out, flush=True)

        import pytest

        os.chdir(ROOT)
        arguments = ["-q", "-n", "0", "--capture=sys", "-p", "no:cacheprovider"]
        arguments += ["-p", "no:twisted", "-p", "no:pytest_twisted"]
        arguments.append("--assert=plain")  # what differs is read by nobody, and may take long
        sys.stdout.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        forks = Forks(faults, options.jobs, tell, options.budget, options.survey)
        code = 3
        try:
            code = pytest.main([*arguments, *paths], plugins=[forks])
        finally:
            out.close()
            os._exit(int(code))
    os.close(send)
    with os.fdopen(receive, encoding="utf-8") as results:
        for line in results:
            number, verdict, test = json.loads(line)
            table.tell(faults[number][0], verdict, test)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"pytest could not run {' '.join(paths)}")


def choose(options, equivalent: set[str]):
    """The faults to plant: each with its module and the tests that somebody names for it."""
    if options.named:
        return named(options.named)
    lines = changed_lines(options.since) if options.since else None
    sampled = list(modules(options.package, tests_of))
    if not sampled:
        wanted = options.package[0]
        why = why_not(wanted) or "there is no such module, or TESTS has no row for it"
        print(f"nothing is planted in {wanted}: {why}", file=sys.stderr)
        sys.exit(2)
    every = [
        (fault, module, "")
        for module in sampled
        for fault in module.faults
        if fault.name not in equivalent and (lines is None or fault.line in lines[module.name])
    ]
    if options.sample is not None and options.sample < len(every):
        return random.Random(options.seed).sample(every, options.sample)
    return every


def named(path: Path):
    """What a list names; it must fit."""
    wanted = list(read_names(path))
    parsed = {module.name: module for module in modules([name.split()[0] for _, name, _ in wanted])}
    chosen = []
    for section, name, _ in wanted:
        module = parsed.get(name.split()[0])
        fault = next((it for it in module.faults if it.name == name), None) if module else None
        if fault is None:
            function = name.partition(": ")[0]
            there = [it.name for it in module.faults] if module else []
            rest = [
                it.removeprefix(f"{function}: ") for it in there if it.startswith(f"{function}: ")
            ]
            print(
                f"{path}: nothing fits {name!r}. That function has: {', '.join(rest) or 'no fault'}"
            )
            sys.exit(2)
        chosen.append((fault, module, section))
    return chosen


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--package", action="append", help="path below rmq_ha; again for more")
    parser.add_argument("--sample", type=int, help="so many, drawn at random (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--budget",
        type=float,
        default=inf,
        metavar="SECONDS",
        help="of tests for a fault: what needs longer ones counts as survived (default: all)",
    )
    parser.add_argument(
        "--survey", type=Path, metavar="FILE", help="keeps what the tests reach for the next run"
    )
    parser.add_argument("--since", metavar="REV", help="only lines that differ from it")
    parser.add_argument("--named", type=Path, metavar="FILE", help="only those that a file names")
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--terse", action="store_true", help="say nothing of those caught")
    options = parser.parse_args(arguments)
    options.package = options.package or list(TESTS)
    table = Table(options.terse)
    groups = defaultdict(list)
    for fault, module, section in choose(options, {name for _, name, _ in read_names(EQUIVALENT)}):
        paths = (section,) if section else tests_of(module.name)
        groups[("",) if options.named else paths].append((fault, module, section))
        if options.list:
            print(f"{fault.name}  # {fault.change}")
    if options.list:
        return 0
    for paths, faults in sorted(groups.items()):
        sections = tuple(sorted({section for _, _, section in faults if section}))
        run_group(sections if options.named else paths, faults, options, table)
    print(table)
    return int(any(found[SURVIVED] + found[NOT_REACHED] for found in table.figures.values()))


if __name__ == "__main__":
    sys.exit(main())
