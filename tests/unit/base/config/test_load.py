"""Properties text to configuration. Spec: store.md, section 13."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.load import (
    LoadedBroker,
    load_broker,
    load_namesrv,
    render,
    render_changed,
    update,
)
from rmq_ha.base.config.plans import embeds_namesrv, port_plan
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.printable import is_one_line
from rmq_ha.base.model.status import BrokerRole, FlushDiskType

HERE = Surroundings(
    environ={}, home="/home/u", host_name="box", address="10.1.2.3", directory="/work"
)
NO_ADDRESS = (
    "is not host:port; write a name or an address, and a port from 1 to 65535, such as "
    "10.0.0.5:9876 or [fd00::5]:9876"
)
SLAVE = "brokerRole=SLAVE\nbrokerId=1\n"


def load(text: str, surroundings: Surroundings = HERE, **given: object) -> LoadedBroker:
    return load_broker(text, surroundings, name="b.properties", **given)  # type: ignore[arg-type]


def notices(text: str) -> list[str]:
    return [notice.text for notice in load(text).notices]


def test_an_empty_file_is_a_master_with_computed_defaults() -> None:
    configuration, found = load("")
    broker, store = configuration.broker, configuration.store
    assert found == []
    assert configuration.server.listen_port == 10911
    assert store.ha_listen_port == 10912
    assert (broker.broker_name, broker.broker_id) == ("box", 0)
    assert (broker.broker_ip1, broker.broker_ip2) == ("10.1.2.3", "10.1.2.3")
    assert store.store_path_root_dir == "/home/u/store"
    assert store.store_path_commit_log == "/home/u/store/commitlog"
    assert broker.namesrv_addr is None
    assert configuration.config_file == "/work/b.properties"


def test_values_are_typed_and_stripped() -> None:
    """Java ignores `brokerRole=SLAVE ` with its blank at the end; we take it as meant."""
    configuration, found = load(
        "brokerRole = SYNC_MASTER \nflushDiskType=SYNC_FLUSH\nslaveReadEnable= TRUE \t\n"
        "listenPort=20001\nbrokerClusterName=c \nslaveTimeout=+250\n"
    )
    assert found == []
    assert configuration.store.broker_role is BrokerRole.SYNC_MASTER
    assert configuration.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert configuration.broker.slave_read_enable is True
    assert configuration.broker.broker_cluster_name == "c"
    assert configuration.server.listen_port == 20001
    assert configuration.store.slave_timeout == 250


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("slaveReadEnable=yes", "must be true or false"),
        ("slaveReadEnable=", "must be true or false"),
        ("haSendHeartbeatInterval=1_000", "must be a whole number"),
        ("haSendHeartbeatInterval=", "must be a whole number"),
        ("haSendHeartbeatInterval=0", "must be from 1 to 2147483647"),
        ("haSendHeartbeatInterval=2147483648", "must be from 1 to 2147483647"),
        ("brokerRole=MASTER", "must be one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("listenPort=65536", "must be from 0 to 65535"),
        ("listenPort=2", "must be from 3 to 65534: listenPort - 2 and listenPort + 1 are used too"),
        ("mappedFileSizeCommitLog=0", "must be from 4096 to 2147483647"),
        ("namesrvAddr=a:1;b", f"'b' {NO_ADDRESS}"),
        ("haMasterAddress=a:0", f"'a:0' {NO_ADDRESS}"),
        ("deleteWhen=24", "must be hours from 00 to 23, separated by ;"),
        ("messageDelayLevel=1s 5x", "'5x' is not a number with s, m, h or d"),
        ("storePathCommitLog=/a,/b", "several directories are not implemented: name one"),
        (
            "duplicationEnable=true",
            "dispatch breaks with it, as it does in RocketMQ 4.9.7; remove the line",
        ),
        ("enableDLegerCommitLog=true", "dLegerGroup is missing"),
        ("tls.server.mode=on", "must be one of disabled, permissive, enforcing"),
        ("tls.enable=1", "must be true or false"),
        (
            "aclAccessKey=someaccount",
            "aclAccessKey and aclSecretKey need each other",
        ),
    ],
)
def test_a_bad_value_names_file_line_key_value_and_reason(setting: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(f"# a comment\n\n{setting}\n")
    assert str(caught.value) == f"b.properties:3: {setting}: {reason}"


def test_a_refused_key_may_say_that_it_is_off() -> None:
    assert notices("duplicationEnable=false\nenableDLegerCommitLog=false\naclEnable=false") == []


def test_a_bad_override_says_where_it_came_from() -> None:
    with pytest.raises(ConfigurationError, match=r"^command line: listenPort=x: "):
        load("", overrides=[("listenPort", "x")])


def test_overrides_win_over_the_file() -> None:
    configuration, found = load("listenPort=20001", overrides=[("listenPort", "20004")])
    assert (configuration.server.listen_port, found) == (20004, [])


def test_an_unknown_key_is_noted_with_its_nearest() -> None:
    assert load("\nbrokerRol=SLAVE\nlistenport=1\nqwxyz=1").notices == [
        ("b.properties:2: unknown key brokerRol; did you mean brokerRole?", True),
        ("b.properties:3: unknown key listenport; did you mean listenPort?", True),
        ("b.properties:4: unknown key qwxyz", True),
    ]


def test_a_key_of_another_program_is_told_with_it() -> None:
    ((text, _),) = load("brokerName=b\nproductEnvName=x").notices
    assert "a key of rmqha-namesrv, not of this server: is this the right file?" in text


@pytest.mark.parametrize("key", ["commitLogPlugIn", "haPlugIn"])
def test_a_key_that_is_gone_stops_the_start_and_says_what_to_do(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{key}.*journalPlugIn names.*remove this line"):
        load(f"{key}=default")


def test_an_unknown_tls_key_is_noted() -> None:
    assert notices("tls.server.keyPth=/k") == [
        "b.properties:1: unknown key tls.server.keyPth; did you mean tls.server.keyPath?"
    ]


def test_a_key_of_4_9_that_does_nothing_here_is_noted_when_it_is_used() -> None:
    assert notices("sendMessageThreadPoolNums=128\ntransientStorePoolSize=5") == [
        "b.properties:1: sendMessageThreadPoolNums has no effect: "
        "rmq-ha serves requests in one thread, so there is no pool to size"
    ]


def test_a_key_that_does_nothing_in_4_9_either_is_silent() -> None:
    assert notices("filterServerNums=3\nputMsgIndexHightWater=9") == []


def test_a_repeated_key_is_noted_and_the_last_counts() -> None:
    configuration, found = load("slaveTimeout=1\nslaveTimeout=2")
    assert configuration.store.slave_timeout == 2
    assert [notice.text for notice in found] == [
        "b.properties:2: slaveTimeout replaces the one of b.properties:1"
    ]


def test_options_of_plugins_and_tls_are_kept_as_they_are() -> None:
    configuration, found = load("dispatcherPlugIn=audit\naudit.file=/x y\ntls.enable=false")
    assert configuration.plugin_options == {"audit.file": "/x y", "tls.enable": "false"}
    assert found == []


@pytest.mark.parametrize(
    "key",
    [
        "messageStorePlugIn",
        "journalPlugIn",
        "dispatcherPlugIn",
        "hookPlugIn",
        "aclPlugIn",
    ],
)
def test_an_option_belongs_to_whatever_kind_of_plugin_is_chosen(key: str) -> None:
    assert notices(f"{key}=other, audit\naudit.file=/x") == []


def test_records_carry_the_address_that_clients_have() -> None:
    """Or that of this machine, where a broker is made by hand and has none."""
    configuration = load("brokerIP1=10.9.9.9\nlistenPort=20011").configuration
    assert str(configuration.store_host) == "10.9.9.9:20011"
    assert str(BrokerConfiguration().store_host).startswith("127.0.0.1:")


def test_a_name_server_is_at_home_where_its_file_or_the_environment_says() -> None:
    there = replace(HERE, environ={"ROCKETMQ_HOME": "/opt/r"})
    for text, home in (("", "/opt/r"), ("rocketmqHome=/own", "/own")):
        found = load_namesrv(text, there, name="n.properties").configuration
        assert found.namesrv.rocketmq_home == home


def test_an_option_of_a_plugin_that_is_not_chosen_is_noted() -> None:
    assert load("audit.file=/x").notices == [
        ("b.properties:1: unknown key audit.file: no plugin 'audit' is chosen", True)
    ]


def test_a_master_has_id_0() -> None:
    configuration, found = load("brokerId=3\nbrokerRole=SYNC_MASTER")
    assert configuration.broker.broker_id == 0
    assert [n.text for n in found] == [
        "b.properties:1: brokerId=3 becomes 0: SYNC_MASTER is a master"
    ]


@pytest.mark.parametrize("broker_id", ["", "brokerId=0\n", "brokerId=-1\n"])
def test_a_slave_needs_an_id_above_0(broker_id: str) -> None:
    with pytest.raises(ConfigurationError, match="a SLAVE needs a brokerId above 0"):
        load(f"brokerRole=SLAVE\nnamesrvAddr=a:1\n{broker_id}")


def test_a_slave_must_find_its_master() -> None:
    with pytest.raises(ConfigurationError, match=r"set namesrvAddr .* or haMasterAddress"):
        load(SLAVE)
    assert load(SLAVE + "namesrvAddr=a:1").notices == []
    configuration, found = load(SLAVE + "haMasterAddress=a:1")
    assert "without namesrvAddr" in found[0].text
    assert not embeds_namesrv(configuration)


def test_the_ha_port_is_always_the_next() -> None:
    configuration, found = load("listenPort=20001\nhaListenPort=30000")
    assert configuration.store.ha_listen_port == 20002
    assert "haListenPort=30000 becomes 20002" in found[0].text
    assert notices("listenPort=20001\nhaListenPort=20002") == []


def test_namesrv_addr_comes_from_the_environment_unless_the_file_says_it() -> None:
    there = replace(HERE, environ={"NAMESRV_ADDR": "n:9876", "ROCKETMQ_HOME": "/opt/r"})
    configuration, _ = load("", there)
    assert configuration.broker.namesrv_addr == "n:9876"
    assert configuration.broker.rocketmq_home == "/opt/r"
    assert load("namesrvAddr=m:1", there).configuration.broker.namesrv_addr == "m:1"
    with pytest.raises(ConfigurationError, match="NAMESRV_ADDR=n: 'n' is not host:port"):
        load("", replace(HERE, environ={"NAMESRV_ADDR": "n"}))


def test_relative_store_paths_start_from_the_directory() -> None:
    store = load("storePathRootDir=./s/../t").configuration.store
    assert (store.store_path_root_dir, store.store_path_commit_log) == (
        "/work/t",
        "/work/t/commitlog",
    )


def test_a_broker_bound_to_one_address_announces_it() -> None:
    broker = load("bindAddress=127.0.0.1").configuration.broker
    assert (broker.broker_ip1, broker.broker_ip2) == ("127.0.0.1", "127.0.0.1")
    assert load("bindAddress=0.0.0.0").configuration.broker.broker_ip1 == "10.1.2.3"


def test_the_port_plan_has_all_ports() -> None:
    with_own = load("listenPort=20010\nembeddedNamesrvPort=20020").configuration
    assert [port for port, _ in port_plan(with_own)] == [20010, 20008, 20011, 20020]
    without = load("listenPort=20010\nnamesrvAddr=a:1").configuration
    assert [port for port, _ in port_plan(without)] == [20010, 20008, 20011]


def test_the_embedded_name_server_needs_a_port_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match="embeddedNamesrvPort=20008: this port is for"):
        load("listenPort=20010\nembeddedNamesrvPort=20008")


def test_rendered_lines_load_to_the_same_configuration() -> None:
    text = "brokerRole=SYNC_MASTER\nslaveReadEnable=true\nlistenPort=20010\ntls.enable=true"
    configuration = load(text).configuration
    lines = render(configuration)
    assert "slaveReadEnable=true" in lines
    assert "haMasterAddress=" in lines
    assert len({line.split("=")[0] for line in lines}) == len(lines)
    assert load("\n".join(lines)) == (configuration, [])


def test_changed_lines_leave_defaults_out() -> None:
    assert render_changed(BrokerConfiguration()) == []
    lines = render_changed(load("slaveTimeout=1\nsyncFlushTimeout=5000").configuration)
    assert "slaveTimeout=1" in lines
    assert not any(line.startswith("syncFlushTimeout") for line in lines)


def test_passwords_are_not_rendered() -> None:
    lines = render(load("tls.server.keyPath=/k\ntls.server.keyPassword=secret").configuration)
    assert "tls.server.keyPath=/k" in lines
    assert "secret" not in "".join(lines)


def test_an_update_takes_what_it_knows() -> None:
    configuration = load("").configuration
    known = update(
        configuration, {"slaveTimeout": "7 ", "nonsense": "1", "writeBufferLowWaterMark": "9"}
    )
    assert known == ["slaveTimeout", "writeBufferLowWaterMark"]
    assert configuration.store.slave_timeout == 7
    assert "writeBufferLowWaterMark=9" in render(configuration)


def test_an_update_with_a_bad_value_changes_nothing() -> None:
    configuration = load("").configuration
    with pytest.raises(ConfigurationError, match="update: syncFlushTimeout=x: "):
        update(configuration, {"slaveTimeout": "7", "syncFlushTimeout": "x"})
    assert configuration.store.slave_timeout == 3000


def test_an_update_with_a_bad_secret_does_not_tell_it() -> None:
    configuration = load("").configuration
    with pytest.raises(ConfigurationError, match=r"update: haSecret=\*\*\*: needs at least 16"):
        update(configuration, {"haSecret": "tooshort"})


def test_a_name_server() -> None:
    configuration, found = load_namesrv(
        "orderMessageEnable=true\nlistenPrt=1\nx.y=1", HERE, name="conf/n.properties"
    )
    assert configuration.server.listen_port == 9876
    assert configuration.namesrv.order_message_enable is True
    assert configuration.namesrv.kv_config_path == "/home/u/namesrv/kvConfig.json"
    assert configuration.namesrv.config_store_path == "/work/conf/n.properties"
    assert [notice.text for notice in found] == [
        "conf/n.properties:2: unknown key listenPrt; did you mean listenPort?",
        "conf/n.properties:3: unknown key x.y",
    ]
    assert "listenPort=9876" in render(configuration)


def test_a_name_server_may_take_any_free_port() -> None:
    assert load_namesrv("listenPort=0", HERE).configuration.server.listen_port == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["listenPort", "brokerRole", "brokerId", "a.b", "tls.x"]),
            st.text(st.characters(codec="latin-1"), max_size=8),
        )
    )
)
def test_any_settings_are_taken_or_refused(overrides: list[tuple[str, str]]) -> None:
    try:
        load("", overrides=overrides)
    except ConfigurationError:
        pass


def test_a_replication_frame_size_that_is_named_counts() -> None:
    """Also when it is RocketMQ's default; only what nobody set is raised to ours."""

    def sizes(text: str) -> tuple[int, int]:
        configuration = load(text).configuration
        return (
            configuration.store.ha_transfer_batch_size,
            configuration.ours.ha_transfer_batch_max,
        )

    assert sizes("") == (32768, 262144)
    assert sizes("haTransferBatchMax=65536") == (32768, 65536)
    for size in (16384, 32768, 524288):
        assert sizes(f"haTransferBatchSize={size}") == (size, size)
    assert sizes("haTransferBatchSize=32768\nhaTransferBatchMax=65536") == (32768, 65536)
    assert notices("haTransferBatchSize=16384\nhaTransferBatchMax=65536") == [
        "b.properties:2: haTransferBatchMax=65536 does nothing: haTransferBatchSize=16384 is set"
    ]


@pytest.mark.parametrize("value", ["x \\u000aaclEnable=true", "a\\nb", "a\\u0000", "a\\u001b[2J"])
def test_a_value_has_one_line(value: str) -> None:
    """L2: `--check` and GET_BROKER_CONFIG showed a forged line `aclEnable=true`."""
    with pytest.raises(ConfigurationError) as refused:
        load(f"regionId={value}\n")
    assert "must not contain line breaks" in str(refused.value)
    assert "\n" not in str(refused.value)
    options = load(f"acme.x={value}\n").configuration
    assert all(is_one_line(line) for line in render(options))


def test_duplicates_are_not_looked_up_in_an_index_that_is_off() -> None:
    with pytest.raises(ConfigurationError, match="remove messageIndexEnable=false"):
        load("messageIndexEnable=false\nduplicateWindowMillis=60000\n")
