"""Servers that are open, and secrets that every user of a machine may read."""

from pathlib import Path

import pytest
from twisted.logger import formatEvent, globalLogPublisher

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfiguration
from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.ops.app.exposure import readable_secrets
from rmq_ha.ops.app.namesrv_server import NamesrvServer
from rmq_ha.testing.host import World

RULES = b"""
accounts:
- {accessKey: the-admin, secretKey: "12345678", admin: true}
"""


@pytest.mark.parametrize("is_guarded", [False, True])
def test_a_name_server_with_access_control_is_not_called_open(is_guarded: bool) -> None:
    """It was, though what changes anything had to be signed; one without is told of the key."""
    host = World(1).add("namesrv")
    host.disk.replace("/conf/plain_acl.yml", RULES)
    configuration = NamesrvConfiguration()
    configuration.namesrv.acl_enable = is_guarded
    configuration.namesrv.acl_directory = "/conf"
    lines: list[str] = []

    def observe(event: dict[str, object]) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    try:
        NamesrvServer(host.seams, configuration).start()
    finally:
        globalLogPublisher.removeObserver(observe)
    warned = [line for line in lines if "without ACL or TLS" in line]
    assert len(warned) == (0 if is_guarded else 1)
    assert all("set bindAddress, aclEnable=true, or tls." in line for line in warned)


def test_each_file_of_secrets_that_all_may_read_is_named(tmp_path: Path) -> None:
    paths = [tmp_path / "plain_acl.yml", tmp_path / "acl/deep/a.yml", tmp_path / "key.pem"]
    paths += [tmp_path / "broker.properties"]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        path.chmod(0o644)
    configuration = BrokerConfiguration()
    configuration.ours.acl_directory = str(tmp_path)
    configuration.ours.acl_secret_key = "s"
    configuration.plugin_options["tls.server.keyPath"] = str(paths[2])
    told = readable_secrets(configuration, str(paths[3]))
    assert len(told) == 4
    for path, text in zip(paths, told, strict=True):
        assert f"can read {path}, which holds" in text
        assert f"chmod o-rwx {path}" in text
        path.chmod(0o640)
    assert readable_secrets(configuration, str(paths[3])) == []


def test_shared_secrets_are_secrets(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("secrets", "p")]
    for path in paths:
        path.write_text("")
        path.chmod(0o644)
    configuration = BrokerConfiguration()
    configuration.ours.ha_secret_file = str(paths[0])
    configuration.ours.ha_secret = "s"
    told = readable_secrets(configuration, str(paths[1]))
    assert [str(path) in text for path, text in zip(paths, told, strict=True)] == [True, True]


def test_the_secret_of_the_page_is_one(tmp_path: Path) -> None:
    """Of each server: the key's row says that it is secret."""
    properties = tmp_path / "p"
    properties.write_text("")
    properties.chmod(0o644)
    for configuration, own in (
        (broker := BrokerConfiguration(), broker.ours),
        (namesrv := NamesrvConfiguration(), namesrv.namesrv),
        (controller := ControllerConfiguration(), controller.controller),
    ):
        own.page_token = "a secret of the page"
        (told,) = readable_secrets(configuration, str(properties))
        assert "which holds pageToken: chmod o-rwx" in told


def test_files_that_are_not_there_or_hold_no_secret(tmp_path: Path) -> None:
    properties = tmp_path / "p"
    properties.write_text("")
    properties.chmod(0o644)
    configuration = BrokerConfiguration()
    configuration.ours.acl_directory = str(tmp_path / "none")
    assert readable_secrets(configuration, str(properties)) == []
    assert readable_secrets(NamesrvConfiguration(), None) == []


def test_keys_that_the_tls_file_names_are_secrets_too(tmp_path: Path) -> None:
    """Which is where docs/hardening.md has them; only those of the properties file were seen."""
    key, file = tmp_path / "server.key", tmp_path / "tls.properties"
    key.write_text("x")
    file.write_text(f"tls.server.keyPath={key}\ntls.server.keyPassword=secret\n")
    key.chmod(0o644)
    file.chmod(0o644)
    for configuration in (BrokerConfiguration(), NamesrvConfiguration()):
        configuration.plugin_options["tls.config.file"] = str(file)
        told = readable_secrets(configuration, None)
        assert [str(file) in text for text in told] == [True, False]
        assert [str(key) in text for text in told] == [False, True]
