"""Disks and stores."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess

from tests.mistakes.bench import Bench, Running
from tests.mistakes.mistake import Room

STORES = Room("Disks and stores")


def filled(bench: Bench, settings: str = "", count: int = 30) -> Running:
    """A broker with some messages."""
    running = bench.broker(settings)
    bench.admin("topic", "create", "T", "--queues", "1")
    text = bench.admin("produce", "T", "x" * 200, "--count", str(count), "-q")
    assert "exit code 0" in text, text
    return running


def again(bench: Bench, words: str = "serving:") -> str:
    """The next start, until it says this, or serves, or ends."""
    running = bench.start("rmqha-broker", "-c", "b.properties")
    running.until(words)
    return running.end()


def send_much(bench: Bench, count: int) -> str:
    """Bodies of 75 kB that cannot be compressed."""
    (bench.directory / "body").write_bytes(os.urandom(75_000))
    return bench.admin("produce", "T", "--file", "body", "--count", str(count), "-q")


def small_disk(bench: Bench, megabytes: int) -> None:
    """A file system of its own where the store is."""
    store = bench.directory / "store-b"
    store.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(store)], check=True
    )
    bench.callback(subprocess.run, ["umount", "-l", str(store)], check=False)


@STORES.add(
    "a disk without room for a file of the log",
    cause="No space left on device",
    fix="free some disk space",
    then="A-",
    held="tests/unit/server/store/test_disk_faults.py::test_a_log_that_cannot_be_written_for_a_while",
)
def small(bench: Bench) -> str:
    small_disk(bench, 4)
    bench.broker_file(f"mappedFileSizeCommitLog=67108864\nmetricsPort={bench.port['metrics']}\n")
    bench.start("rmqha-broker", "-c", "b.properties").until("serving:")
    bench.admin("topic", "create", "T", "--queues", "1")
    return send_much(bench, 60)


@STORES.add(
    "a disk without room for a file of the log; --check --live before the start",
    cause="no-room",
    fix="enlarge the disk",
    then="A-",
    held="tests/unit/ops/admin/doctor/test_before.py::test_a_store_that_cannot_be",
)
def small_checked(bench: Bench) -> str:
    small_disk(bench, 4)
    bench.broker_file("mappedFileSizeCommitLog=67108864\n")
    return bench.run("rmqha-broker", "-c", "b.properties", "--check", "--live")


@STORES.add(
    "a disk that fills while messages come",
    cause="No space left on device",
    fix="free some disk space",
    held="tests/unit/server/store/test_disk_faults.py::test_a_log_that_cannot_be_written_for_a_while",
)
def fills(bench: Bench) -> str:
    small_disk(bench, 8)
    bench.broker("diskMaxUsedSpaceRatio=95\ndiskSpaceCleanForciblyRatio=95\n")
    bench.admin("topic", "create", "T", "--queues", "1")
    return send_much(bench, 200)


@STORES.add(
    "a disk so full that messages are deleted early",
    cause="before its time, because the disk is too full",
    fix="free disk space, or ask for less",
    then="C",
    held="tests/unit/server/store/test_clean.py::test_each_file_that_goes_before_its_time_is_said_and_counted",
)
def forced(bench: Bench) -> str:
    small_disk(bench, 24)
    running = bench.broker("diskMaxUsedSpaceRatio=30\ndiskSpaceCleanForciblyRatio=30\n")
    bench.admin("topic", "create", "T", "--queues", "1")
    send_much(bench, 120)
    bench.typed = "(the broker's log)"
    return running.until("before its time")


@STORES.add(
    "a disk that is mounted read-only",
    cause="Read-only file system",
    fix="storePathRootDir",
    held="tests/unit/ops/app/test_service.py::test_a_file_error_names_the_file",
)
def read_only(bench: Bench) -> str:
    small_disk(bench, 16)
    subprocess.run(["mount", "-o", "remount,ro", bench.path("store-b")], check=True)
    bench.broker_file()
    return again(bench)


@STORES.add(
    "damage in the middle of the log, and a crash",
    cause="whole messages",
    fix="keepDamagedLog",
    then="C",
)
def damage(bench: Bench) -> str:
    running = filled(bench)
    running.end()
    log = bench.directory / "store-b" / "commitlog" / ("0" * 20)
    with log.open("r+b") as file:
        file.seek(3000)
        file.write(bytes(100))
    (bench.directory / "store-b" / "abort").touch()
    return again(bench)


@STORES.add(
    "the disk of the commit log is not mounted",
    cause="commit log",
    fix="startWithoutCommitLog",
    then="C",
)
def no_log(bench: Bench) -> str:
    filled(bench).end()
    shutil.rmtree(bench.directory / "store-b" / "commitlog")
    return again(bench)


@STORES.add(
    "consume queues deleted",
    cause="is gone, and ended at 30",
    fix="taken from the log",
    then="B",
)
def no_queues(bench: Bench) -> str:
    filled(bench).end()
    shutil.rmtree(bench.directory / "store-b" / "consumequeue")
    return again(bench)


@STORES.add(
    "another file size than the store was written with",
    cause="are configured",
    fix="start with the file size with which the store was written",
    then="A",
)
def other_size(bench: Bench) -> str:
    filled(bench).end()
    bench.broker_file("mappedFileSizeCommitLog=2097152\n")
    return again(bench)


@STORES.add(
    "a file of the log that was cut short",
    cause="has 5000 bytes",
    fix="restore it from a copy",
    then="A",
)
def truncated(bench: Bench) -> str:
    filled(bench).end()
    with (bench.directory / "store-b" / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.truncate(5000)
    return again(bench)


@STORES.add(
    "topics.json damaged, no .bak",
    cause="topics.json",
    fix="copy them from another replica",
    then="A",
)
def no_topics(bench: Bench) -> str:
    filled(bench).end()
    for path in (bench.directory / "store-b" / "config").glob("topics.json*"):
        path.write_text('{"topicConfigTable":{')
    return again(bench)


@STORES.add(
    "a backup of another log into the same directory",
    cause="differs from the log of this backup",
    fix="in another directory",
)
def other_backup(bench: Bench) -> str:
    filled(bench).end()
    bench.run("rmqha-admin", "backup", "bak", "-c", "b.properties")
    shutil.rmtree(bench.directory / "store-b")
    running = filled(bench)
    running.end(signal.SIGTERM)
    return bench.run("rmqha-admin", "backup", "bak", "-c", "b.properties")


@STORES.add("a backup of a store that does not exist", cause="store-b", fix="storePathRootDir")
def backup_of_nothing(bench: Bench) -> str:
    bench.broker_file()
    return bench.run("rmqha-admin", "backup", "bak", "-c", "b.properties")


@STORES.add(
    "restore into an existing store",
    cause="is not empty",
    fix="a new store",
)
def restore_over(bench: Bench) -> str:
    filled(bench).end()
    bench.run("rmqha-admin", "backup", "bak", "-c", "b.properties")
    return bench.run("rmqha-admin", "restore", "bak", "-c", "b.properties")


@STORES.add(
    "restore from a directory that is no backup",
    cause="no finished backup",
    fix="give the directory",
)
def restore_of_nothing(bench: Bench) -> str:
    bench.broker_file()
    (bench.directory / "bak").mkdir()
    return bench.run("rmqha-admin", "restore", "bak", "-c", "b.properties")


@STORES.add(
    "store repair while its broker runs",
    cause="open",
    fix="stop",
)
def repair_running(bench: Bench) -> str:
    filled(bench)
    return bench.run("rmqha-admin", "store", "repair", "--config", "b.properties", "--yes")


@STORES.add(
    "store repair where the log itself is damaged",
    cause="damaged",
    fix="replica",
)
def repair_damaged(bench: Bench) -> str:
    filled(bench).end()
    with (bench.directory / "store-b" / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(3000)
        file.write(bytes(100))
    shutil.rmtree(bench.directory / "store-b" / "consumequeue")
    return bench.run("rmqha-admin", "store", "repair", "--config", "b.properties", "--yes")


@STORES.add(
    "store verify of a directory that is no store", cause="no commit log", fix="storePathRootDir"
)
def verify_of_nothing(bench: Bench) -> str:
    (bench.directory / "empty").mkdir()
    return bench.run("rmqha-admin", "store", "verify", "empty")


@STORES.add(
    "a table of an unknown form",
    cause="topics.json is damaged",
    fix="Repair one of them",
)
def odd_table(bench: Bench) -> str:
    filled(bench).end()
    path = bench.directory / "store-b" / "config" / "topics.json"
    for each in path.parent.glob("topics.json*"):
        each.write_text(json.dumps({"topicConfigTable": "T"}))
    return again(bench)
