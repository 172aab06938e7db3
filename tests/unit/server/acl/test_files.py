"""Which files count, and what becomes of broken ones."""

import pytest

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.server.acl import files
from rmq_ha.server.acl.edits import set_white_addresses
from rmq_ha.server.acl.files import AclFiles
from rmq_ha.testing.host import World

ACCOUNT = "accounts: [{accessKey: %s, secretKey: '12345678'}]"


class Setup:
    def __init__(self, **texts: str) -> None:
        self.host = World(1).add("broker")
        self.disk = self.host.disk
        for name, text in texts.items():
            self.write(name, text)
        self.files = AclFiles(self.disk, "/conf")
        self.clock = 0

    def write(self, name: str, text: str) -> None:
        path = {"plain": "plain_acl.yml"}.get(name, f"acl/{name}")
        self.disk.replace(f"/conf/{path}", text.encode())

    def refresh(self) -> bool:
        return self.files.refresh(self.host.now_ms())

    def load(self) -> "Setup":
        self.files.load(self.host.now_ms())
        return self

    def keys(self) -> list[str]:
        return [item.access_key for file in self.files.current() for item in file.accounts]


def test_the_folder_comes_before_the_default_file() -> None:
    setup = Setup(
        **{
            "plain": ACCOUNT % "defaultkey",
            "b.yml": ACCOUNT % "bbbbbbb",
            "a.yaml": ACCOUNT % "aaaaaaa",
            "sub/c.yml": ACCOUNT % "ccccccc",
            "readme.txt": "not ours",
            "b.yml.bak": "[",
        }
    ).load()
    assert setup.keys() == ["aaaaaaa", "bbbbbbb", "ccccccc", "defaultkey"]
    assert list(setup.files.versions()) == [
        "/conf/acl/a.yaml",
        "/conf/acl/b.yml",
        "/conf/acl/sub/c.yml",
        "/conf/plain_acl.yml",
    ]


def test_a_start_without_files_says_where_they_should_be() -> None:
    with pytest.raises(ConfigurationError, match=r"neither /conf/plain_acl.yml nor a .yml file in"):
        Setup().load()


def test_a_start_with_a_broken_file_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"/conf/acl/b.yml:1: accounts: must be a list"):
        Setup(**{"plain": "accounts: []", "b.yml": "accounts: 5"}).load()


def test_nothing_new_is_no_news() -> None:
    setup = Setup(plain=ACCOUNT % "someaccount").load()
    setup.write("plain", ACCOUNT % "otheraccount")
    assert setup.refresh()

    def refuse(path: str) -> bytes:
        raise AssertionError("what has not changed is not read each second")

    setup.disk.read_bytes = refuse  # type: ignore[method-assign]
    assert not setup.refresh()
    assert setup.keys() == ["otheraccount"]
    assert setup.files.faults == {}


def test_a_changed_a_new_and_a_deleted_file_are_news() -> None:
    setup = Setup(plain=ACCOUNT % "firstaccount").load()
    setup.write("plain", ACCOUNT % "secondaccount")
    assert setup.refresh()
    assert setup.keys() == ["secondaccount"]
    setup.write("b.yml", ACCOUNT % "thirdaccount")
    assert setup.refresh()
    assert setup.keys() == ["thirdaccount", "secondaccount"]
    setup.disk.remove("/conf/acl/b.yml")
    assert setup.refresh()
    assert setup.keys() == ["secondaccount"]
    assert setup.files.faults == {}


def test_a_file_that_breaks_counts_as_it_was_and_others_are_read() -> None:
    setup = Setup(**{"plain": ACCOUNT % "firstaccount", "b.yml": ACCOUNT % "bbbbbbb"}).load()
    setup.write("plain", "accounts: broken")
    setup.write("b.yml", ACCOUNT % "secondbbbb")
    assert setup.refresh()
    assert setup.keys() == ["secondbbbb", "firstaccount"]
    assert "/conf/plain_acl.yml:1: accounts: must be" in setup.files.faults["/conf/plain_acl.yml"]
    assert not setup.refresh()  # said once
    assert setup.files.faults
    setup.write("plain", ACCOUNT % "repairedaccount")
    assert setup.refresh()
    assert setup.files.faults == {}
    assert setup.keys() == ["secondbbbb", "repairedaccount"]


def test_a_new_file_that_is_broken_has_no_say() -> None:
    setup = Setup(plain=ACCOUNT % "firstaccount").load()
    setup.write("b.yml", "[")
    assert setup.refresh()
    assert setup.keys() == ["firstaccount"]
    assert list(setup.files.faults) == ["/conf/acl/b.yml"]


def test_a_file_that_is_just_being_written_is_not_taken_for_empty() -> None:
    setup = Setup(plain=ACCOUNT % "firstaccount").load()
    setup.write("plain", "")
    assert setup.refresh()
    assert setup.keys() == ["firstaccount"]
    assert "is empty" in setup.files.faults["/conf/plain_acl.yml"]
    setup.write("plain", "accounts: []")
    assert setup.refresh()
    assert setup.keys() == []


def test_folders_are_read_to_a_depth() -> None:
    """A link to a folder above would lead round for ever."""
    names = ["/".join("12345678"[:depth] + "x") + ".yml" for depth in range(9)]
    setup = Setup(**dict.fromkeys(names, ACCOUNT % "someaccount"))
    setup.write("/".join("123456789") + "/y.yml", ACCOUNT % "someaccount")
    setup.load()
    assert sorted(setup.files.versions()) == sorted(f"/conf/acl/{name}" for name in names)


def test_more_files_than_anybody_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_FILES", 2)
    setup = Setup(**{"a.yml": ACCOUNT % "aaaaaaa", "b.yml": ACCOUNT % "bbbbbbb"}).load()
    setup.write("c.yml", ACCOUNT % "ccccccc")
    assert setup.refresh()
    assert setup.files.faults == {"/conf": "/conf/acl: more than 2 ACL files"}
    assert setup.keys() == ["aaaaaaa", "bbbbbbb"]


def test_without_any_file_the_last_rules_stay() -> None:
    setup = Setup(plain=ACCOUNT % "firstaccount").load()
    setup.disk.remove("/conf/plain_acl.yml")
    assert setup.refresh()
    assert setup.keys() == ["firstaccount"]
    assert "there is neither" in setup.files.faults["/conf"]
    assert not setup.refresh()


def test_a_change_counts_up_the_version() -> None:
    setup = Setup(plain="dataVersion: [{counter: 5, timestamp: 9}]\naccounts: []").load()
    setup.files.change("/conf/plain_acl.yml", set_white_addresses(["1.1.1.1"]), 1234)
    version = setup.files.versions()["/conf/plain_acl.yml"]
    assert (version.counter, version.timestamp) == (6, 1234)
    assert setup.files.current()[0].white_addresses == ("1.1.1.1",)
    assert not setup.refresh()


def test_changes_of_one_moment_and_size_are_all_in_force() -> None:
    setup = Setup(plain=ACCOUNT % "firstaccount").load()
    for address in ("1.1.1.1", "2.2.2.2", "3.3.3.3"):
        setup.files.change("/conf/plain_acl.yml", set_white_addresses([address]), 1234)
        assert setup.files.current()[0].white_addresses == (address,)


def test_a_file_without_a_version_has_that_of_its_first_reading() -> None:
    setup = Setup(plain=ACCOUNT % "firstaccount").load()
    before = setup.files.versions()["/conf/plain_acl.yml"]
    assert (before.counter, before.timestamp) == (0, setup.host.now_ms())
    setup.files.change("/conf/plain_acl.yml", set_white_addresses([]), 1234)
    assert setup.files.versions()["/conf/plain_acl.yml"].counter == 1


def test_a_change_makes_the_file_that_is_missing() -> None:
    setup = Setup(**{"b.yml": ACCOUNT % "bbbbbbb"}).load()
    setup.files.change("/conf/plain_acl.yml", set_white_addresses(["1.1.1.1"]), 1)
    assert [file.path for file in setup.files.current()] == [
        "/conf/acl/b.yml",
        "/conf/plain_acl.yml",
    ]


def test_a_broken_file_is_not_changed() -> None:
    setup = Setup(plain=ACCOUNT % "firstaccount").load()
    setup.write("plain", "accounts: broken")
    with pytest.raises(ConfigurationError, match="must be a list"):
        setup.files.change("/conf/plain_acl.yml", set_white_addresses([]), 1)
    assert setup.disk.read_bytes("/conf/plain_acl.yml") == b"accounts: broken"


def test_a_change_that_cannot_be_written_is_an_error_and_changes_nothing() -> None:
    """Or an operator believes in an account that is not there after the next start."""
    setup = Setup(plain=ACCOUNT % "defaultkey").load()
    before = setup.disk.read_bytes("/conf/plain_acl.yml")

    def refuse(path: str, data: bytes, *, backup: bool = False) -> None:
        raise OSError(28, "No space left on device", path)

    replace, setup.disk.replace = setup.disk.replace, refuse  # type: ignore[method-assign]
    with pytest.raises(ConfigurationError, match=r"plain_acl.yml: No space left"):
        setup.files.change("/conf/plain_acl.yml", set_white_addresses(["10.*.*.*"]), 1)
    setup.disk.replace = replace  # type: ignore[method-assign]
    assert setup.disk.read_bytes("/conf/plain_acl.yml") == before
    assert setup.keys() == ["defaultkey"]


def test_a_folder_that_cannot_be_read_is_news_once_and_so_is_its_return() -> None:
    setup = Setup(plain=ACCOUNT % "defaultkey").load()

    def refuse(path: str) -> list[str]:
        raise OSError(5, "Input/output error", path)

    listed, setup.disk.list_dir = setup.disk.list_dir, refuse  # type: ignore[method-assign]
    assert [setup.refresh(), setup.refresh()] == [True, False]
    assert setup.keys() == ["defaultkey"]
    setup.disk.list_dir = listed  # type: ignore[method-assign]
    assert [setup.refresh(), setup.refresh()] == [True, False]


def test_a_file_that_goes_between_two_looks_at_it_is_gone() -> None:
    setup = Setup(**{"plain": ACCOUNT % "defaultkey", "a.yml": ACCOUNT % "aaaaaaa"}).load()
    mtime = setup.disk.mtime_ms

    def gone(path: str) -> int:
        if path.endswith("a.yml"):
            raise FileNotFoundError(path)
        return mtime(path)

    setup.disk.mtime_ms = gone  # type: ignore[method-assign]
    assert setup.refresh()
    assert (setup.keys(), setup.files.faults) == (["defaultkey"], {})
