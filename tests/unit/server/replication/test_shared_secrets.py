"""`rmq_ha.server.replication.shared_secrets`: what both ends know, as a file has it."""

import pytest

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.server.replication.shared_secrets import SharedSecrets

FIRST, SECOND = "a secret of ours", "the one before it"


class Files(dict[str, str]):
    """Files that a test writes."""

    def read_bytes(self, path: str) -> bytes:
        if path not in self:
            raise FileNotFoundError(2, "not there")
        return self[path].encode()


def secrets_of(files: Files, **own: str) -> SharedSecrets:
    configuration = RmqHaConfig()
    for name, value in own.items():
        setattr(configuration, name, value)
    return SharedSecrets(configuration, files.read_bytes)


def test_without_a_secret_there_is_none_and_nothing_to_read() -> None:
    secrets = secrets_of(Files())
    assert (secrets.all, secrets.files) == ((), ())
    secrets.reload()
    assert secrets.all == ()


def test_a_secret_of_the_configuration_is_the_only_one() -> None:
    secrets = secrets_of(Files(), ha_secret=FIRST)
    assert (secrets.all, secrets.files) == ((FIRST.encode(),), ())
    secrets.reload()
    assert secrets.all == (FIRST.encode(),)


def test_the_lines_of_a_file_are_known_from_the_start_the_first_one_first() -> None:
    files = Files(s=f"\n  {FIRST} \n\n{SECOND}\n")
    secrets = secrets_of(files, ha_secret_file="s")
    assert secrets.all == (FIRST.encode(), SECOND.encode())
    assert secrets.files == ("s",)
    files["s"] = SECOND
    secrets.reload()
    assert secrets.all == (SECOND.encode(),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "1 to 16 lines with a secret each, not 0"),
        ("\n".join([FIRST] * 17), "1 to 16 lines with a secret each, not 17"),
        (f"{FIRST}\n\nfifteen letters", "s:3: needs at least 16 characters"),
    ],
)
def test_a_file_that_is_no_use_stops_the_start_and_changes_nothing_later(
    text: str, reason: str
) -> None:
    files = Files(s=text)
    with pytest.raises(ConfigurationError, match=reason):
        secrets_of(files, ha_secret_file="s")
    files["s"] = FIRST
    secrets = secrets_of(files, ha_secret_file="s")
    files["s"] = text
    with pytest.raises(ConfigurationError, match=reason):
        secrets.reload()
    assert secrets.all == (FIRST.encode(),)


def test_sixteen_secrets_of_sixteen_characters_are_taken() -> None:
    files = Files(s="\n".join(["exactly sixteen!"] * 16))
    assert len(secrets_of(files, ha_secret_file="s").all) == 16


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match="haSecretFile=s: not there"):
        secrets_of(Files(), ha_secret_file="s")
