"""Who is believed, and what the other is told; without a socket."""

import contextlib
import os
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from OpenSSL import SSL

from rmq_ha.base.errors import ConfigurationError, TlsRefused
from rmq_ha.base.tls.client import ClientTls
from rmq_ha.base.tls.context import ClientAuth, _verify, client_context, server_context
from rmq_ha.base.tls.files import certificate_names, certificate_text, self_signed
from rmq_ha.base.tls.ha import HaTls
from rmq_ha.base.tls.peer import PeerCheck, has_name
from rmq_ha.base.tls.server import FirstByte, ServerTls
from rmq_ha.base.tls.session import TlsSession
from tests.unit.base.tls.material import Files, authority, now_ms, talk

REAL = {"tls.test.mode.enable": "false"}


@pytest.fixture
def files() -> Files:
    return Files()


def server_of(files: Files, *names: str, **how) -> ServerTls:
    options = files.put_pair("tls.server", *names or ("localhost", "127.0.0.1"), **how)
    return ServerTls(REAL | options, files.read_bytes, now_ms)


def asking(files: Files, wanted: str, *, root: str = "ours") -> ServerTls:
    options = files.put_pair("tls.server", "localhost") | files.put_root("tls.server", root)
    options |= {"tls.server.need.client.auth": wanted, "tls.server.authClient": "true"}
    return ServerTls(REAL | options, files.read_bytes, now_ms)


def client_of(files: Files, *names: str, root: str | None = "ours", **how) -> ClientTls:
    options = REAL | {"tls.enable": "true"}
    if root:
        options |= files.put_root("tls.client", root)
    if names:
        options |= files.put_pair("tls.client", *names, **how)
    return ClientTls(options, files.read_bytes, now_ms)


def refusal(client, server) -> str:
    with pytest.raises(TlsRefused) as caught:
        talk(client, server)
    return str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_bytes_go_both_ways(files: Files, host: str) -> None:
    client, server = client_of(files).session(host), server_of(files).session()
    talk(client, server)
    assert client.check.identity == "localhost, 127.0.0.1"
    assert server.check.identity == ""
    assert client.version == "TLSv1.3"
    for one, other in ((client, server), (server, client)):
        for data in (b"x", os.urandom(300_000), b"y" * 16384):
            one.send(data)
            assert other.receive_data(one.data_to_send()) == data
    client.close()
    assert server.receive_data(client.data_to_send()) == b""
    assert server.is_closed


def test_pieces_of_any_size_make_the_same_bytes(files: Files) -> None:
    client, server = client_of(files).session("localhost"), server_of(files).session()
    talk(client, server)
    data = os.urandom(40_000)
    client.send(data)
    wire = client.data_to_send()
    got = b"".join(server.receive_data(wire[i : i + 777]) for i in range(0, len(wire), 777))
    assert got == data


@pytest.mark.parametrize("host", ["otherhost", "127.0.0.2", "::1", "sub.localhost"])
def test_a_server_of_another_name(files: Files, host: str) -> None:
    client = client_of(files)
    text = refusal(client.session(host), server_of(files).session())
    assert text == f"its certificate is for localhost, 127.0.0.1, not for {host}"


def test_the_server_hears_that_it_was_refused(files: Files) -> None:
    client, server = client_of(files).session("otherhost"), server_of(files).session()
    client.start()
    server.receive_data(client.data_to_send())
    with pytest.raises(TlsRefused):
        client.receive_data(server.data_to_send())
    with pytest.raises(TlsRefused, match="it does not accept this side's certificate"):
        server.receive_data(client.data_to_send())


def test_another_root(files: Files) -> None:
    client = client_of(files, root="theirs")
    text = refusal(client.session("localhost"), server_of(files).session())
    assert "is signed by no root that this side trusts" in text


def test_an_expired_server(files: Files) -> None:
    server = server_of(files, "localhost", ends=timedelta(seconds=-5))
    text = refusal(client_of(files).session("localhost"), server.session())
    assert text == "its certificate (localhost) has expired"


def test_a_server_that_made_its_own_certificate(files: Files) -> None:
    server = ServerTls({}, files.read_bytes, now_ms)
    text = refusal(client_of(files).session("localhost"), server.session())
    assert "is self-signed" in text


def test_without_a_root_any_server_will_do(files: Files) -> None:
    """As RocketMQ without tls.client.authServer; the log says so at the start."""
    client = client_of(files, root=None).session("wherever")
    talk(client, server_of(files).session())
    assert client.check.identity == ""


def test_an_explicit_no_to_verification_is_kept(files: Files) -> None:
    options = REAL | {"tls.enable": "true", "tls.client.authServer": "false"}
    client = ClientTls(options | files.put_root("tls.client"), files.read_bytes, now_ms)
    talk(client.session("wherever"), server_of(files).session())


def test_a_client_with_a_certificate_is_known(files: Files) -> None:
    server = asking(files, "require").session()
    talk(client_of(files, "worker-7.example").session("localhost"), server)
    assert server.check.identity == "worker-7.example"


def test_a_client_without_the_required_certificate(files: Files) -> None:
    text = refusal(client_of(files).session("localhost"), asking(files, "require").session())
    assert text == "it showed no certificate, and one is required"


def test_optional_means_that_none_will_do_but_not_any(files: Files) -> None:
    server = asking(files, "optional")
    talk(client_of(files).session("localhost"), server.session())
    stranger = client_of(files, "stranger", root="ours")
    options = REAL | {"tls.enable": "true"} | files.put_root("tls.client")
    options |= files.put_pair("tls.client", "stranger", root="theirs")
    stranger = ClientTls(options, files.read_bytes, now_ms)
    text = refusal(stranger.session("localhost"), server.session())
    assert "is signed by no root that this side trusts" in text


def test_an_expired_client(files: Files) -> None:
    client = client_of(files, "worker", ends=timedelta(seconds=-5))
    text = refusal(client.session("localhost"), asking(files, "require").session())
    assert text == "its certificate (worker) has expired"


def test_what_speaks_only_an_old_version(files: Files) -> None:
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_cipher_list(b"ALL:@SECLEVEL=0")
    context.set_min_proto_version(SSL.TLS1_VERSION)
    context.set_max_proto_version(SSL.TLS1_1_VERSION)
    old = SSL.Connection(context, None)
    old.set_connect_state()
    try:
        old.do_handshake()
    except SSL.WantReadError:
        hello = old.bio_read(4096)
    except SSL.Error:
        pytest.skip("this OpenSSL cannot even offer TLS 1.1")
    with pytest.raises(TlsRefused, match="only TLS versions older"):
        server_of(files).session().receive_data(hello)


def contexts() -> list[SSL.Context]:
    """One of each end."""
    pair = self_signed(now_ms())
    return [server_context(pair, ClientAuth.NONE, None), client_context(pair, None)]


def test_old_versions_are_refused_even_where_openssl_would_take_them() -> None:
    """A build, or a system's configuration, may allow more than we do."""
    old = SSL.Context(SSL.TLS_METHOD)
    old.set_min_proto_version(SSL.TLS1_VERSION)
    old.set_max_proto_version(SSL.TLS1_1_VERSION)
    pair = self_signed(now_ms())
    old.use_privatekey(pair.key)
    old.use_certificate(pair.certificate)
    server, client = contexts()
    for context in (old, server, client):
        context.set_cipher_list(b"ALL:@SECLEVEL=0")
    theirs = TlsSession(old, PeerCheck(), connects=True)
    theirs.start()
    with pytest.raises(TlsRefused, match="only TLS versions older"):
        TlsSession(server, PeerCheck(), connects=False).receive_data(theirs.data_to_send())
    ours = TlsSession(client, PeerCheck(), connects=True)
    ours.start()
    with pytest.raises(TlsRefused, match="version"):
        TlsSession(old, PeerCheck(), connects=False).receive_data(ours.data_to_send())


def test_no_connection_outlives_its_certificate_in_another() -> None:
    """No tickets and no cache, nothing that is done anew, nothing that is compressed."""
    server, client = contexts()
    for context in (server, client):
        set_now = context.set_options(0)
        for option in (SSL.OP_NO_COMPRESSION, SSL.OP_NO_RENEGOTIATION, SSL.OP_NO_TICKET):
            assert set_now & option
    assert server.get_session_cache_mode() == SSL.SESS_CACHE_OFF


def test_a_chain_of_several_authorities_is_shown_as_a_whole(files: Files) -> None:
    """Who knows the root only has to see all that lies between."""
    between = authority("ours").create_child_ca().create_child_ca()
    issued = between.issue_cert("localhost")
    options = files.put_pair("tls.server", "localhost")
    files["/tls.server.key"] = issued.private_key_pem.bytes()
    files["/tls.server.pem"] = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    server = ServerTls(REAL | options, files.read_bytes, now_ms).session()
    talk(client_of(files).session("localhost"), server)


def test_all_that_a_file_of_roots_names_is_believed(files: Files) -> None:
    """Two roots while one replaces the other; one below a root that others sign with, too."""
    child = authority("theirs").create_child_ca()
    issued = child.issue_cert("localhost")
    options = files.put_pair("tls.server", "localhost")
    files["/tls.server.key"] = issued.private_key_pem.bytes()
    files["/tls.server.pem"] = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    server = ServerTls(REAL | options, files.read_bytes, now_ms)
    for roots in (
        authority("ours").cert_pem.bytes() + authority("theirs").cert_pem.bytes(),
        child.cert_pem.bytes(),
    ):
        files["/ours-root.pem"] = roots
        client = ClientTls(
            REAL | {"tls.enable": "true", "tls.client.trustCertPath": "/ours-root.pem"},
            files.read_bytes,
            now_ms,
        )
        talk(client.session("localhost"), server.session())


def test_the_server_hears_which_name_is_wanted(files: Files) -> None:
    """It may have a certificate for each; an address is no name."""
    client = client_of(files)
    for host, is_said in (("localhost", True), ("127.0.0.1", False)):
        session = client.session(host)
        session.start()
        assert (host.encode() in session.data_to_send()) is is_said


def test_good_bye_in_the_middle_of_a_handshake_is_harmless(files: Files) -> None:
    session = client_of(files).session("localhost")
    session.start()
    session.close()


def test_in_test_mode_all_meet_the_same_certificate(files: Files) -> None:
    """A new key for each connection would be work for whoever asks."""
    server = ServerTls({}, files.read_bytes, now_ms)
    shown = set()
    for _ in range(2):
        client = TlsSession(client_context(None, None), PeerCheck(), connects=True)
        talk(client, server.session())
        shown.add(client._connection.get_peer_certificate().get_serial_number())
    assert len(shown) == 1


class Broken:
    """A certificate that no parser expected."""

    def to_cryptography(self) -> x509.Certificate:
        raise KeyError("no such curve")


def test_what_a_strangers_certificate_breaks_goes_no_further() -> None:
    check = PeerCheck(is_verified=True)
    connection = SimpleNamespace(get_app_data=lambda: check)
    assert not _verify(connection, Broken(), 0, 0, 1)
    assert check.reason == "its certificate cannot be read (KeyError)"


@pytest.mark.parametrize(
    ("error", "depth", "reason"),
    [
        (10, 0, "its certificate (a.example) has expired"),
        (10, 1, "a certificate of its chain (a.example) has expired"),
        (79, 1, "a certificate of its chain (a.example) is not valid (OpenSSL's verification "),
    ],
)
def test_whose_certificate_is_wrong_and_why(error: int, depth: int, reason: str) -> None:
    check = PeerCheck(is_verified=True)
    certificate = x509.load_pem_x509_certificate(
        authority().issue_cert("a.example").cert_chain_pems[0].bytes()
    )
    assert not check.judge(certificate, error, depth)
    assert check.reason.startswith(reason)
    assert check.names == ()


def test_without_verification_of_clients_nobody_is_known(files: Files) -> None:
    """As in RocketMQ: the certificate is asked for and not looked at."""
    options = files.put_pair("tls.server", "localhost") | files.put_root("tls.server")
    options |= {"tls.server.need.client.auth": "require", "tls.server.authClient": "false"}
    server = ServerTls(REAL | options, files.read_bytes, now_ms).session()
    talk(client_of(files, "stranger", root="ours").session("localhost"), server)
    assert server.check.identity == ""


@pytest.mark.parametrize(
    ("options", "first", "reason"),
    [
        ({"tls.server.mode": "enforcing"}, 0, "it does not speak TLS, and tls.server.mode=enf"),
        ({"tls.server.mode": "disabled"}, 0x16, "it speaks TLS, and tls.server.mode=disabled"),
        (REAL, 0x16, "it speaks TLS, and there is no certificate to show it"),
    ],
)
def test_why_a_connection_is_closed(options: dict[str, str], first: int, reason: str) -> None:
    rules = ServerTls(options, Files().read_bytes, now_ms)
    assert rules.judge(first) is FirstByte.CLOSE
    assert rules.refusal(first).startswith(reason)
    if first:
        with pytest.raises(ConfigurationError, match="aclRequiresTls without TLS here"):
            rules.must_be_possible("aclRequiresTls")
    else:
        rules.must_be_possible("aclRequiresTls")


def test_a_client_reads_its_root_again(files: Files) -> None:
    client = client_of(files, root="theirs")
    server = server_of(files)
    files["/theirs-root.pem"] = authority("ours").cert_pem.bytes()
    assert "no root that this side trusts" in refusal(client.session("localhost"), server.session())
    client.reload()
    talk(client.session("localhost"), server.session())


def test_a_client_that_finds_no_tls() -> None:
    client = TlsSession(client_context(None, None), PeerCheck(), connects=True)
    client.start()
    with pytest.raises(TlsRefused, match="it does not speak TLS"):
        client.receive_data(b"\0\0\0\x10 this is remoting")


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=1, max_size=400), st.booleans())
def test_garbage_is_refused_in_words_or_waited_for(data: bytes, has_type: bool) -> None:
    server = ServerTls({}, Files().read_bytes, now_ms).session()
    with contextlib.suppress(TlsRefused):
        server.receive_data(b"\x16\x03\x01" + data if has_type else data)
    assert not server.is_secured


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 4000), st.integers(1, 255))
def test_a_flipped_byte_after_the_handshake_ends_it(place: int, change: int) -> None:
    files = Files()
    client = TlsSession(client_context(None, None), PeerCheck(), connects=True)
    server = ServerTls({}, files.read_bytes, now_ms).session()
    talk(client, server)
    client.send(b"m" * 4000)
    wire = bytearray(client.data_to_send())
    wire[place] ^= change
    try:
        plain = server.receive_data(bytes(wire))
    except TlsRefused:
        return
    assert plain == b""  # it waits for more: the length was changed


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
def test_the_first_byte_decides(mode: str) -> None:
    rules = ServerTls({"tls.server.mode": mode}, Files().read_bytes, now_ms)
    tls, plain = rules.judge(0x16), rules.judge(0)
    assert tls is (FirstByte.CLOSE if mode == "disabled" else FirstByte.START_TLS)
    assert plain is (FirstByte.CLOSE if mode == "enforcing" else FirstByte.PLAIN)


def test_new_material_counts_from_the_next_handshake_on(files: Files) -> None:
    server = server_of(files, "localhost")
    old = server.session()
    files.put_pair("tls.server", "newhost")
    server.reload()
    talk(client_of(files).session("newhost"), server.session())
    talk(client_of(files).session("localhost"), old)


# Replication


def ha_of(files: Files, *names: str, root: str = "ours", **changes: str) -> HaTls:
    options = files.put_pair("tls.ha", *names, root=root) | files.put_root("tls.ha", root)
    options |= {"tls.ha.mode": "enforcing", "tls.ha.enable": "true", "tls.ha.allowedNames": "*"}
    options |= {f"tls.ha.{name}": value for name, value in changes.items()}
    return HaTls(options, files.read_bytes, now_ms)


def test_master_and_slave_prove_who_they_are(files: Files) -> None:
    master, slave = ha_of(files, "m.example", "10.0.0.1"), ha_of(files, "s.example")
    link, door = slave.link_session("10.0.0.1"), master.session()
    talk(link, door)
    assert link.check.identity == "m.example, 10.0.0.1"
    assert door.check.identity == "s.example"


def test_a_master_of_another_name_or_root(files: Files) -> None:
    master, slave = ha_of(files, "m.example"), ha_of(files, "s.example")
    text = refusal(slave.link_session("10.0.0.1"), master.session())
    assert text == "its certificate is for m.example, not for 10.0.0.1"
    named = ha_of(files, "s.example", masterName="m.example")
    talk(named.link_session("10.0.0.1"), master.session())
    stranger = ha_of(files, "m.example", root="theirs")
    assert "signed by no root" in refusal(slave.link_session("m.example"), stranger.session())


def test_only_slaves_of_these_names(files: Files) -> None:
    master = ha_of(files, "m.example", allowedNames="s.example, 10.0.0.9")
    talk(ha_of(files, "s.example").link_session("m.example"), master.session())
    talk(ha_of(files, "10.0.0.9").link_session("m.example"), master.session())
    link = ha_of(files, "client.example").link_session("m.example")
    text = refusal(link, master.session())
    assert text == "its certificate is for client.example, not for s.example or 10.0.0.9"


def test_a_reload_that_fails_keeps_everything(files: Files) -> None:
    master = ha_of(files, "m.example")
    slave = ha_of(files, "s.example")
    files["/tls.ha.pem"] = b"oops"
    with pytest.raises(Exception, match="no PEM certificate"):
        slave.reload()
    talk(slave.link_session("m.example"), master.session())


def test_settings_of_replication_are_read_again_as_a_whole(files: Files) -> None:
    """The link speaks TLS, or another name is wanted, from the next connection on."""
    pair = files.put_pair("tls.ha", "m.example") | files.put_root("tls.ha")
    fixed = pair | {"tls.config.file": "/own", "tls.ha.allowedNames": "*"}
    rules = None
    for lines, enabled, mode in (
        ("tls.ha.mode=enforcing\ntls.ha.enable=true\ntls.ha.masterName=a", True, "enforcing"),
        (
            "tls.ha.mode=enforcing\ntls.ha.enable=true\ntls.ha.masterName=m.example",
            True,
            "enforcing",
        ),
        ("tls.ha.mode=enforcing", False, "enforcing"),
        ("tls.ha.mode=enforcing\ntls.ha.enable=true", True, "enforcing"),
        ("", False, "disabled"),
    ):
        files["/own"] = lines.encode()
        if rules is None:
            rules = HaTls(fixed, files.read_bytes, now_ms)
        else:
            rules.reload()
        assert (rules.is_enabled, rules.mode.value) == (enabled, mode)
        if lines.endswith("Name=a"):
            text = refusal(rules.link_session("10.0.0.1"), rules.session())
            assert text == "its certificate is for m.example, not for a"
        elif lines.endswith("m.example"):
            talk(rules.link_session("10.0.0.1"), rules.session())


def test_a_link_alone_needs_no_certificate(files: Files) -> None:
    """Encrypted, to a master that asks for none."""
    link = HaTls({"tls.ha.enable": "true"}, files.read_bytes, now_ms)
    pair = files.put_pair("tls.ha", "m.example")
    master = HaTls(pair | {"tls.ha.mode": "permissive"}, files.read_bytes, now_ms)
    assert not master.is_enabled
    assert link.judge(0x16) is FirstByte.CLOSE
    shown = HaTls(pair | {"tls.ha.enable": "true"}, files.read_bytes, now_ms)
    assert shown.judge(0x16) is FirstByte.CLOSE
    talk(link.link_session("10.0.0.1"), master.session())


def test_a_slave_without_a_certificate_is_refused(files: Files) -> None:
    """Where there is a root everybody shows one."""
    link = HaTls({"tls.ha.enable": "true"}, files.read_bytes, now_ms)
    text = refusal(link.link_session("m.example"), ha_of(files, "m.example").session())
    assert text == "it showed no certificate, and one is required"


def test_names() -> None:
    issued = authority().issue_cert("*.b.example", "::1", "localhost")
    certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    for name in ("a.b.example", "::1", "0:0:0:0:0:0:0:1", "localhost", "LOCALHOST"):
        assert has_name(certificate, name), name
    for name in (
        "b.example",
        "c.a.b.example",
        "::2",
        "127.0.0.1",
        "",
        "no such name",
        "\N{SNOWMAN}",
    ):
        assert not has_name(certificate, name), name


def test_the_common_name_is_no_name() -> None:
    issued = trustme.CA().issue_cert("a@example", common_name="localhost")
    certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    assert not has_name(certificate, "localhost")


def shown_names(files: Files, *names: str, common: str | None = None) -> tuple[str, ...]:
    """What a server that asks for it knows of a client's certificate."""
    server = asking(files, "require").session()
    issued = authority("ours").issue_cert(*names, common_name=common)
    files["/client.key"] = issued.private_key_pem.bytes()
    files["/client.pem"] = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    options = {"tls.client.keyPath": "/client.key", "tls.client.certPath": "/client.pem"}
    client = ClientTls(REAL | options, files.read_bytes, now_ms, enabled=True)
    talk(client.session("localhost"), server)
    return server.check.names


def test_the_names_of_a_certificate(files: Files) -> None:
    """Its common name counts only where it has no others."""
    assert shown_names(files, "a.example", "10.0.0.1", "ops@a.example") == (
        "a.example",
        "10.0.0.1",
        "ops@a.example",
    )
    assert shown_names(files, "a.example", common="admin.example") == ("a.example",)
    assert shown_names(files, common="admin.example") == ("admin.example",)


def made_certificate(extension: bytes | None) -> x509.Certificate:
    """With its names only in its subject, and perhaps an extension that nobody can read."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "worker")])
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, now, now)
    if extension is not None:
        oid = x509.ExtensionOID.SUBJECT_ALTERNATIVE_NAME
        builder = builder.add_extension(x509.UnrecognizedExtension(oid, extension), critical=False)
    return builder.sign(key, hashes.SHA256())


def test_whatever_a_certificate_holds_it_is_read_or_nobody() -> None:
    """What cannot be read could be any name, and so is none."""
    plain, broken = made_certificate(None), made_certificate(b"garbage")
    assert certificate_names(plain) == ("worker",)
    assert certificate_names(broken) == ()
    assert certificate_text(plain) == certificate_text(broken) == "CN=worker"


def test_a_certificate_that_nobody_vouches_for_has_no_names(files: Files) -> None:
    check = PeerCheck(is_verified=False)
    certificate = x509.load_pem_x509_certificate(
        authority().issue_cert("a.example").cert_chain_pems[0].bytes()
    )
    assert check.judge(certificate, 0, 0)
    assert check.names == ()
