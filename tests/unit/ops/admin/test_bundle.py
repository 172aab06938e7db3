"""`rmqha-admin bundle`: what is in the archive, what is missing, and that no secret is."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.ops.admin.bundle import BundleOptions, write_bundle
from rmq_ha.ops.admin.bundle_archive import BundleArchive, BundleLimits
from rmq_ha.ops.admin.doctor.gather import DoctorScope
from rmq_ha.ops.admin.redaction import HIDDEN, Redactor, is_secret_name
from rmq_ha.ops.admin.session import NO_ANSWER
from tests.unit.ops.admin.admin_kit import Said, say
from tests.unit.ops.admin.doctor.fleet import Fleet

PLANTED = "Zq7-planted-secret"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvgIBADANBg\n-----END PRIVATE KEY-----"
LOG = f"""
started with haSecret={PLANTED}1, listens on 10911
{{"message":"login","fields":{{"secretKey":"{PLANTED}2","peer":"10.0.0.7:1"}}}}
GET /api/overview Authorization: Bearer {PLANTED}3
connect amqp://user:{PLANTED}4@host/ failed
{KEY}
the account's {PLANTED}5 stands alone here
password : '{PLANTED}6'
"""


def made(fleet: Fleet, path: Path, *configs: Path, **more: Any) -> tuple[Said, dict[str, str]]:
    """What the command says, and the texts in the archive by path."""
    host = replace(fleet.world.add(f"admin-{path.name}").seams, disk=RealDisk())
    names = ("logs", "page_token", "log_bytes")
    given = {name: more.pop(name) for name in names if name in more}
    scope = DoctorScope(again_s=0)
    how = BundleOptions(scope, tuple(map(str, configs)), **given)
    said = say(fleet, lambda s: write_bundle(s, str(path), how), host, **more)
    with tarfile.open(path) as archive:
        texts = {}
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            assert entry.mode == 0o600
            folder, _, name = entry.name.partition("/")
            assert folder == path.name.removesuffix(".tar.gz")
            texts[name] = file.read().decode()
    return said, texts


def test_an_archive_has_the_state_of_every_server_and_names_the_silent_one(tmp_path: Path) -> None:
    fleet = Fleet("a", watched=True)
    fleet.add("b", broker={"broker_name": "other"})
    fleet.run(5)
    fleet.make_topic()
    fleet.send("Work", 3)
    said, texts = made(fleet, tmp_path / "all.tar.gz")
    assert said.code == 0, said.err
    brokers = {path.split("/")[1] for path in texts if path.startswith("brokers/")}
    assert len(brokers) == 2
    for broker in brokers:
        own = {path.split("/")[2] for path in texts if path.startswith(f"brokers/{broker}/")}
        names = {f"{name}.json" for name in ("settings", "figures", "topics", "groups", "offsets")}
        assert names <= own
        assert "rmqha_store_writable" in texts[f"brokers/{broker}/metrics.txt"]
        assert texts[f"brokers/{broker}/healthz.txt"].startswith("ready")
        assert "Work" in texts[f"brokers/{broker}/topics.json"]
    assert "findings" in json.loads(texts["doctor.json"])
    assert "secrets. Values of settings" in texts["README.txt"], "its own text stays whole"
    assert any(path.startswith("nameservers/") for path in texts)
    assert "/api/events" in texts["README.txt"], "the page is off there, which is named"
    fleet.crash("b", power=True)
    address = f"{fleet.hosts['b'].ip}:10911"
    said, texts = made(fleet, tmp_path / "part.tar.gz")
    assert said.code == NO_ANSWER
    assert f"settings of {address}" in texts["README.txt"]
    assert any(gap["part"] == f"settings of {address}" for gap in said.json["missing"])
    said, texts = made(fleet, tmp_path / "none.tar.gz", namesrv="10.9.9.9:1")
    assert said.code == NO_ANSWER
    assert "10.9.9.9:1" in texts["README.txt"]


def test_no_secret_is_in_the_archive_wherever_one_was_planted(tmp_path: Path) -> None:
    """Settings of a broker and of files, secret files, options of the command, and logs."""
    fleet = Fleet()
    ours = {"ha_secret": f"{PLANTED}a", "acl_access_key": "op", "acl_secret_key": f"{PLANTED}b"}
    page = {"page_token": f"{PLANTED}c"}
    options = {"tls.server.keyPassword": f"{PLANTED}d", "acme.token": f"{PLANTED}e"}
    fleet.add("a", ours=ours | page, options=options)
    fleet.run(5)
    secrets = tmp_path / "ha.secrets"
    secrets.write_text(f"{PLANTED}f\n{PLANTED}g\n")
    config = tmp_path / "broker.properties"
    config.write_text(
        f"brokerName=a\nhaSecretFile={secrets}\naclSecretKey={PLANTED}h\npageToken={PLANTED}i\n"
        f"acme.apiPassword={PLANTED}j\ntls.server.keyPassword={PLANTED}k\n"
    )
    log = tmp_path / "broker.log"
    known = "fghijk"
    log.write_text(LOG + "".join(f"{letter}: it was {PLANTED}{letter}\n" for letter in known))
    given = Credentials("op", f"{PLANTED}5", f"{PLANTED}l")
    said, texts = made(
        fleet,
        tmp_path / "secret.tar.gz",
        config,
        logs=(str(log),),
        page_token=f"{PLANTED}m",
        credentials=given,
    )
    assert said.code == 0, said.err
    everything = "\n".join(texts.values())
    assert PLANTED not in everything
    assert PLANTED not in said.out + said.err
    assert "MIIEvgIBADANBg" not in everything
    assert f"haSecretFile={secrets}" in everything
    assert "brokerName=a" in everything
    for word in ("listens on 10911", "10.0.0.7:1", "stands alone here", "@host/ failed"):
        assert word in everything, "the rest of the lines stays"


def test_only_the_end_of_a_log_is_taken(tmp_path: Path) -> None:
    fleet = Fleet("a")
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    missing = str(tmp_path / "gone.log")
    said, texts = made(fleet, tmp_path / "l.tar.gz", logs=(str(log), missing), log_bytes=100)
    (tail,) = [text for path, text in texts.items() if path.endswith("x.log")]
    assert tail.startswith("line ")
    assert tail.endswith("line 999\n")
    assert len(tail) <= 100
    assert "only the last 100 of 8890 bytes" in texts["README.txt"]
    assert f"{missing}: No such file" in texts["README.txt"]
    assert said.code == 0


def test_an_archive_is_bounded_and_names_what_it_left_out() -> None:
    archive = BundleArchive("b", Redactor(), 0, BundleLimits(file=10, total=25))
    archive.add_text("start", "0123456789abc")
    archive.add_text("end", "0123456789abc", keeps_end=True)
    archive.add_text("third", "0123456789")
    archive.add_text("fourth", "x")
    with tarfile.open(fileobj=io.BytesIO(archive.packed("about"))) as packed:
        texts = {item.name: packed.extractfile(item).read().decode() for item in packed}  # type: ignore[union-attr]
    assert texts.pop("b/README.txt").count("bytes") == 4
    assert texts == {"b/start": "0123456789", "b/end": "3456789abc", "b/third": "01234"}


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("haSecret", True),
        ("aclSecretKey", True),
        ("tls.client.keyPassword", True),
        ("pageToken", True),
        ("haSecretFile", False),
        ("haSecretRequired", False),
        ("brokerName", False),
        ("tls.server.keyPath", False),
    ],
)
def test_names_of_secrets(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) == is_secret


@given(st.text(min_size=6, max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_a_known_secret_stands_nowhere(secret: str, before: str, after: str) -> None:
    """Also not as JSON has it."""
    secret = f"S{secret.strip()}#"
    clean = Redactor([secret]).text(f"{before}{secret}{after}" + json.dumps([secret]))
    assert secret not in clean
    assert json.dumps(secret)[1:-1] not in clean
    assert HIDDEN in clean


def test_plain_text_is_left_as_it_is() -> None:
    text = "haSecretRequired=true; the token bucket is full; tokens: none\nkey=k1 topic=T"
    clean = Redactor().text(text)
    assert "haSecretRequired=true" in clean
    assert "key=k1 topic=T" in clean
