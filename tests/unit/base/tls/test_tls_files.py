"""Every fault of a file is told with the file, the reason and what to do."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from twisted.logger import formatEvent

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.tls.client import ClientTls
from rmq_ha.base.tls.files import (
    WARN_BEFORE,
    TlsFiles,
    certificate_text,
    expiry_notices,
    self_signed,
)
from rmq_ha.base.tls.ha import HaTls
from rmq_ha.base.tls.options import TlsOptions
from rmq_ha.base.tls.reload import TlsReload
from rmq_ha.base.tls.server import ServerTls, TlsMode
from rmq_ha.ops.app.status.catalogue import CATALOGUE
from rmq_ha.ops.app.status.certificates import CertificatesStatus
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.testing.host import World
from tests.unit.base.tls.material import Files, now_ms

REAL = {"tls.test.mode.enable": "false"}


@pytest.fixture
def files() -> Files:
    return Files()


def refusal(make) -> str:
    with pytest.raises(ConfigurationError) as caught:
        make()
    return str(caught.value)


def server(files: Files, options) -> ServerTls:
    return ServerTls(REAL | options, files.read_bytes, now_ms)


def encrypted(files: Files, path: str, password: bytes) -> None:
    key = load_pem_private_key(files[path], None)
    files[path] = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password),
    )


def test_a_good_pair_is_taken_with_its_chain(files: Files) -> None:
    options = files.put_pair("tls.server", "localhost")
    assert server(files, options).mode is TlsMode.PERMISSIVE
    assert server(files, options).files == ("/tls.server.key", "/tls.server.pem")


@pytest.mark.parametrize("name", ["keyPath", "certPath"])
def test_a_missing_file(files: Files, name: str) -> None:
    options = files.put_pair("tls.server", "localhost")
    path = options[f"tls.server.{name}"]
    del files[path]
    text = refusal(lambda: server(files, options))
    assert text.startswith(f"tls.server.{name}={path}: No such file or directory; ")


@pytest.mark.parametrize("name", ["keyPath", "certPath"])
def test_half_a_pair(files: Files, name: str) -> None:
    options = files.put_pair("tls.server", "localhost")
    del options[f"tls.server.{name}"]
    assert f"tls.server.{name} is missing" in refusal(lambda: server(files, options))


def test_an_unreadable_file() -> None:
    def read(path: str) -> bytes:
        if path.startswith("/etc"):
            raise FileNotFoundError
        raise PermissionError(13, "Permission denied", path)

    options = REAL | {"tls.server.keyPath": "/k", "tls.server.certPath": "/c"}
    text = refusal(lambda: ServerTls(options, read, now_ms))
    assert "tls.server.keyPath=/k: Permission denied" in text


def test_the_password_of_a_key(files: Files) -> None:
    options = files.put_pair("tls.server", "localhost")
    encrypted(files, "/tls.server.key", b"open sesame")
    text = refusal(lambda: server(files, options))
    assert "/tls.server.key: it is encrypted; set tls.server.keyPassword" in text
    options["tls.server.keyPassword"] = "sesame"
    text = refusal(lambda: server(files, options))
    assert "tls.server.keyPassword does not open it" in text
    assert "sesame" not in text
    options["tls.server.keyPassword"] = "open sesame"
    server(files, options)


def test_a_password_for_an_open_key_is_harmless(files: Files) -> None:
    options = files.put_pair("tls.server", "localhost")
    server(files, options | {"tls.server.keyPassword": "x"})


def test_what_is_not_pem(files: Files) -> None:
    options = files.put_pair("tls.server", "localhost")
    good = dict(files)
    files["/tls.server.key"] = b"\x30\x82"
    assert "/tls.server.key: not PEM; convert it" in refusal(lambda: server(files, options))
    files.update(good)
    files["/tls.server.pem"] = b"\x30\x82"
    assert "/tls.server.pem: no PEM certificate in it" in refusal(lambda: server(files, options))
    files["/tls.server.pem"] = good["/tls.server.pem"].replace(b"MII", b"MIJ", 1)
    assert "/tls.server.pem: damaged" in refusal(lambda: server(files, options))
    files.update(good)
    files["/tls.server.key"] = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    assert "no usable private key in it" in refusal(lambda: server(files, options))
    options["tls.server.keyPassword"] = "x"
    assert "no usable private key in it" in refusal(lambda: server(files, options))


def test_a_key_of_another_certificate(files: Files) -> None:
    options = files.put_pair("tls.server", "localhost")
    other = Files()
    other.put_pair("tls.server", "elsewhere")
    files["/tls.server.pem"] = other["/tls.server.pem"]
    text = refusal(lambda: server(files, options))
    assert "/tls.server.key is not the key of tls.server.certPath=/tls.server.pem" in text
    assert "elsewhere" in text


def test_files_that_the_test_mode_would_ignore(files: Files) -> None:
    """RocketMQ's default takes a made-up certificate and says nothing."""
    options = files.put_pair("tls.server", "localhost")
    make = lambda: ServerTls(options, files.read_bytes, now_ms)  # noqa: E731
    assert "set tls.test.mode.enable=false" in refusal(make)
    ServerTls(options | {"tls.test.mode.enable": "true"}, files.read_bytes, now_ms)


def test_what_is_disabled_reads_no_files(files: Files) -> None:
    options = {"tls.server.mode": "disabled", "tls.server.keyPath": "/gone"}
    assert server(files, options).files == ()


def test_enforcing_needs_a_certificate(files: Files) -> None:
    text = refusal(lambda: server(files, {"tls.server.mode": "enforcing"}))
    assert "lets nobody in: set tls.server.keyPath" in text


def of_server(files: Files) -> None:
    server(files, files.put_pair("tls.server", "x", ends=timedelta(-5)))


def of_client(files: Files) -> None:
    options = REAL | {"tls.enable": "true"}
    options |= files.put_pair("tls.client", "x", ends=timedelta(-5)) | files.put_root("tls.client")
    ClientTls(options, files.read_bytes, now_ms)


def of_replication(files: Files) -> None:
    options = {"tls.ha.mode": "enforcing", "tls.ha.allowedNames": "*"} | files.put_root("tls.ha")
    options |= files.put_pair("tls.ha", "x", ends=timedelta(-5))
    HaTls(options, files.read_bytes, now_ms)


@pytest.mark.parametrize("make", [of_server, of_client, of_replication])
def test_whoever_reads_a_certificate_that_ended_says_so(files: Files, logged, make) -> None:
    make(files)
    (line,) = [formatEvent(event) for event in logged]
    assert "peers refuse it; renew it now" in line


def test_settings_that_protect_less_than_they_seem_to_are_told(files: Files, logged) -> None:
    pair, root = files.put_pair("tls.server", "x"), files.put_root("tls.server")
    server(files, pair)
    server(files, pair | root | {"tls.server.need.client.auth": "require"})
    ClientTls({"tls.enable": "true"}, files.read_bytes, now_ms)  # test mode: nothing to expect
    assert logged == []
    server(files, pair | root)
    assert "so tls.server.trustCertPath has no effect" in formatEvent(logged.pop())
    HaTls({"tls.ha.enable": "true"}, files.read_bytes, now_ms)
    assert "replication is encrypted, but nobody is verified" in formatEvent(logged.pop())
    client = REAL | {"tls.enable": "true"}
    ClientTls(client, files.read_bytes, now_ms)
    assert "servers are not verified" in formatEvent(logged.pop())
    ClientTls(client | files.put_root("tls.client"), files.read_bytes, now_ms)
    assert logged == []


PROVING = REAL | {"tls.client.trustCertPath": "/ours-root.pem"}


@pytest.mark.parametrize(
    ("options", "enabled", "reason"),
    [
        (PROVING, True, ""),
        (PROVING | {"tls.enable": "true"}, False, ""),
        (PROVING, False, "would be signed over plain TCP"),
        (PROVING | {"tls.client.authServer": "false"}, True, "nobody would check who gets"),
        (REAL, True, "nobody would check who gets"),
        (PROVING | {"tls.test.mode.enable": "true"}, True, "nobody would check who gets"),
    ],
)
def test_what_is_signed_goes_only_to_servers_that_prove_who_they_are(
    files: Files, options: dict[str, str], enabled: bool, reason: str
) -> None:
    files.put_root("tls.client")

    def make() -> ClientTls:
        how = {"enabled": enabled, "demanded_by": "aclTimed"}
        return ClientTls(options, files.read_bytes, now_ms, **how)

    if reason:
        text = refusal(make)
        assert text.startswith("aclTimed: ")
        assert reason in text
    else:
        assert make().enabled


@pytest.mark.parametrize("name", ["keyPath", "certPath", "trustCertPath"])
@pytest.mark.parametrize("side", ["server", "client"])
def test_no_file_is_left_out_in_silence(files: Files, side: str, name: str) -> None:
    """Test mode is RocketMQ's default, and ignores them."""
    options = TlsOptions({f"tls.{side}.{name}": "/x"}, files.read_bytes)
    assert f"tls.{side}.{name}=/x would have no effect" in refusal(
        lambda: options.is_test_mode(side)
    )
    assert options.is_test_mode("client" if side == "server" else "server")


def test_every_unknown_key_of_the_file_is_told(files: Files, logged) -> None:
    files["/own"] = b"tls.a=1\ntls.b=2\n"
    ServerTls({"tls.config.file": "/own"}, files.read_bytes, now_ms)
    assert [event["key"] for event in logged] == ["tls.a", "tls.b"]


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError("it is gone")])
def test_why_a_file_cannot_be_read(error: OSError) -> None:
    """Also where the system has no number for it."""

    def read(path: str) -> bytes:
        raise error

    reason = error.strerror or "it is gone"
    text = refusal(lambda: TlsOptions({"tls.config.file": "/own"}, read))
    assert text.startswith(f"tls.config.file=/own: {reason}; make it readable")
    pair = {"tls.server.keyPath": "/k", "tls.server.certPath": "/c"}
    options = TlsOptions(pair, Files().read_bytes)
    text = refusal(lambda: TlsFiles(options, read).key_pair("tls.server"))
    assert text.startswith(f"tls.server.keyPath=/k: {reason}; it must be there")


def test_what_is_read_is_watched_and_nothing_else(files: Files) -> None:
    """Also when nothing but the file of settings was there."""
    files["/own"] = b"tls.test.mode.enable=false"
    assert ServerTls({"tls.config.file": "/own"}, files.read_bytes, now_ms).files == ("/own",)
    client = REAL | {"tls.enable": "true"} | files.put_root("tls.client")
    assert ClientTls(client, files.read_bytes, now_ms).files == ("/ours-root.pem",)
    ha = files.put_pair("tls.ha", "x") | {"tls.ha.mode": "permissive"}
    assert HaTls(ha, files.read_bytes, now_ms).files == ("/tls.ha.key", "/tls.ha.pem")


def test_verification_needs_a_root(files: Files) -> None:
    pair = files.put_pair("tls.server", "localhost")
    text = refusal(lambda: server(files, pair | {"tls.server.authClient": "true"}))
    assert "needs tls.server.trustCertPath" in text
    options = REAL | {"tls.enable": "true", "tls.client.authServer": "true"}
    text = refusal(lambda: ClientTls(options, files.read_bytes, now_ms))
    assert "needs tls.client.trustCertPath" in text


def test_the_config_file_wins_and_names_its_lines(files: Files) -> None:
    pair = files.put_pair("tls.server", "localhost")
    lines = ["# ours", "tls.test.mode.enable=false", *(f"{k}={v}" for k, v in pair.items())]
    files["/etc/rocketmq/tls.properties"] = "\n".join(lines).encode()
    made = ServerTls({}, files.read_bytes, now_ms)  # found where RocketMQ looks
    assert made.files[0] == "/etc/rocketmq/tls.properties"
    assert "/tls.server.pem" in made.files
    files["/own"] = b"\n".join([b"tls.server.need.client.auth=perhaps", b"tls.server.kexPath=/k"])
    text = refusal(lambda: ServerTls({"tls.config.file": "/own"}, files.read_bytes, now_ms))
    assert text.startswith("tls.server.need.client.auth=perhaps: must be one of")
    files["/own"] = b"tls.server.kexPath=/k"
    assert TlsOptions({"tls.config.file": "/own"}, files.read_bytes).unknown == [
        "tls.server.kexPath"
    ]


@pytest.mark.parametrize("key", ["tls.server.mode", "tls.enable"])
def test_keys_that_rocketmq_does_not_read_from_the_config_file(files: Files, key: str) -> None:
    files["/own"] = f"\n{key}=enforcing".encode()
    text = refusal(lambda: ServerTls({"tls.config.file": "/own"}, files.read_bytes, now_ms))
    assert text.startswith(f"/own:2: {key} has no effect in this file")


def test_a_config_file_that_is_named_must_be_there(files: Files) -> None:
    text = refusal(lambda: ServerTls({"tls.config.file": "/own"}, files.read_bytes, now_ms))
    assert text.startswith("tls.config.file=/own: there is no such file")


def test_what_enforces_tls_also_connects_with_it(files: Files) -> None:
    """As RocketMQ: a broker whose name server is of the same mind can register."""
    options = {"tls.server.mode": "enforcing"}
    assert ClientTls(options, files.read_bytes, now_ms).enabled
    plain = options | {"tls.enable": "false"}
    assert not ClientTls(plain, files.read_bytes, now_ms).enabled
    assert not ClientTls({}, files.read_bytes, now_ms).enabled


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tls.ha.mode": "permissive"}, "slaves that speak plain cannot be verified"),
        ({"tls.ha.enable": "true"}, "slaves that speak plain cannot be verified"),
        (
            {"tls.ha.mode": "enforcing", "tls.ha.allowedNames": " , "},
            "tls.ha.trustCertPath without tls.ha.allowedNames: every client with a certificate",
        ),
        (
            {"tls.ha.mode": "enforcing", "tls.ha.keyPath": "", "tls.ha.certPath": ""},
            "needs tls.ha.keyPath and tls.ha.certPath",
        ),
        (
            {"tls.ha.mode": "enforcing", "tls.ha.trustCertPath": "", "tls.ha.allowedNames": "b"},
            "tls.ha.allowedNames needs tls.ha.trustCertPath",
        ),
    ],
)
def test_replication_settings_that_contradict_each_other(
    files: Files, changes: dict[str, str], message: str
) -> None:
    options = files.put_pair("tls.ha", "a") | files.put_root("tls.ha")
    options |= {"tls.ha.allowedNames": "*"} | changes
    assert message in refusal(lambda: HaTls(options, files.read_bytes, now_ms))


def test_replication_is_plain_unless_asked_for(files: Files) -> None:
    """A Java slave speaks plain; other TLS settings change nothing here."""
    made = HaTls({"tls.server.mode": "enforcing"}, files.read_bytes, now_ms)
    assert made.mode is TlsMode.DISABLED
    assert not made.is_enabled
    assert made.files == ()


def notices_of(files: Files, ends: timedelta):
    options = TlsOptions(files.put_pair("tls.server", "soon", ends=ends), files.read_bytes)
    pair = TlsFiles(options, files.read_bytes).key_pair("tls.server")
    assert pair is not None
    return expiry_notices([("tls.server.certPath", pair.certificate)], now_ms())


def test_the_end_of_a_certificate_is_told_in_time(files: Files) -> None:
    (soon,) = notices_of(files, timedelta(days=29, hours=23))
    assert not soon.is_error
    assert "tls.server.certPath (soon) ends in 29 days" in soon.text
    assert notices_of(files, timedelta(days=31)) == []
    (ended,) = notices_of(files, timedelta(seconds=-1))
    assert ended.is_error
    assert "peers refuse it; renew it now" in ended.text


def test_the_edges_of_a_certificates_time() -> None:
    """To the second, as OpenSSL judges it: the last one is over, the first one has begun."""
    certificate = self_signed(1_700_000_000_000).certificate
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc

    def told(at: datetime) -> list[tuple[bool, str]]:
        notices = expiry_notices([("x", certificate)], int(at.timestamp() * 1000))
        return [(notice.is_error, notice.text.partition(") ")[2][:13]) for notice in notices]

    second = timedelta(seconds=1)
    assert begin == datetime.fromtimestamp(1_700_000_000, UTC) - timedelta(days=365)
    assert told(begin - second) == [(True, "is valid only")]
    assert told(begin) == []
    assert told(end - WARN_BEFORE) == []
    assert told(end - WARN_BEFORE + second) == [(False, "ends in 29 da")]
    assert told(end - second) == [(False, "ends in 0 day")]
    assert told(end) == [(True, "ended at 2033")]


def test_every_certificate_that_ends_is_named_with_its_setting(files: Files, logged) -> None:
    """Ours, those of its chain, the roots."""
    options = files.put_pair("tls.server", "soon", ends=timedelta(days=5))
    ending = files["/tls.server.pem"]
    files.put_pair("tls.server", "old", ends=timedelta(days=-5))
    files["/tls.server.pem"] += ending + ending
    files["/roots"] = ending
    options |= {"tls.server.trustCertPath": "/roots", "tls.server.need.client.auth": "require"}
    server(files, options)
    said = [(event["log_level"].name, formatEvent(event).split(" (")[0]) for event in logged]
    assert said == [
        ("error", "tls.server.certPath"),
        ("warn", "tls.server.certPath, its chain"),
        ("warn", "tls.server.certPath, its chain"),
        ("warn", "tls.server.trustCertPath"),
    ]


def test_a_certificate_of_tomorrow() -> None:
    made = self_signed(now_ms() + 3 * 365 * 86_400_000)
    (early,) = expiry_notices([("x", made.certificate)], now_ms())
    assert early.is_error
    assert "valid only from" in early.text


def test_names_of_strangers_do_not_break_the_log() -> None:
    import trustme

    issued = trustme.CA().issue_cert("a", common_name="a\nERROR: all is lost")
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    assert "\n" not in certificate_text(certificate)


def test_when_certificates_end_is_a_metric(files: Files) -> None:
    options = files.put_pair("tls.server", "box", ends=timedelta(days=3))
    tls = TlsReload(World(1).add("h").seams, [server(files, options)])
    found = Samples(CATALOGUE, {"server": "rmqnamesrv"})
    CertificatesStatus("rmqnamesrv", tls).collect(found)
    (family,) = found.families()
    (sample,) = family.samples
    assert sample.labels == {"server": "rmqnamesrv", "setting": "tls.server.certPath", "who": "box"}
    assert sample.value == pytest.approx(now_ms() / 1000 + 3 * 86400, abs=2)


def test_of_all_certificates_of_all_parts_the_first_end_counts(files: Files) -> None:
    """By setting, and by who it is."""
    ends = iter([timedelta(days=5), timedelta(days=3), timedelta(days=9)])
    parts = []
    for name in ("a", "a", "b"):
        options = files.put_pair("tls.server", name, ends=next(ends))
        parts.append(server(files, options))
    found = TlsReload(World(1).add("h").seams, parts).certificates()
    now = now_ms() / 1000
    assert {who: round((end - now) / 86400) for (_, who), end in found.items()} == {"a": 3, "b": 9}
