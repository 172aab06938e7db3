"""Files with secrets in them are read and written as such."""

import os
import stat

import pytest

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.host.private_file import read_private, write_private


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_it_and_its_directories_are_for_its_owner_only(tmp_path):
    path = str(tmp_path / "made" / "f")
    assert read_private(path) is None
    for data in (b"one", b"two"):  # the directory may be there already
        write_private(path, data)
        assert read_private(path) == data
    assert [mode(path), mode(tmp_path / "made")] == [0o600, 0o700]
    assert os.listdir(tmp_path / "made") == ["f"]


def test_one_in_the_directory_that_we_are_in_needs_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_private("f", b"secret")
    assert (tmp_path / "f").read_bytes() == b"secret"


@pytest.mark.parametrize("others", [0o640, 0o604, 0o610])
def test_what_others_may_read_is_not_used(tmp_path, others):
    path = tmp_path / "f"
    path.write_bytes(b"secret")
    path.chmod(others)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_private(str(path))


def test_what_cannot_be_read_or_written_is_named(tmp_path, monkeypatch):
    """What was there stays, and nothing comes beside it."""
    with pytest.raises(ConfigurationError, match="Is a directory"):
        read_private(str(tmp_path))
    path = str(tmp_path / "f")
    write_private(path, b"old")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)  # not what replaces: it has to come before that
    with pytest.raises(ConfigurationError, match="No space left on device; nothing changed"):
        write_private(path, b"new")
    assert os.listdir(tmp_path) == ["f"]
    assert read_private(path) == b"old"
