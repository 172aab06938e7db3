"""UPDATE_BROKER_CONFIG on a running broker reaches its properties file. Spec: remoting.md, 7.9."""

from twisted.internet.defer import gatherResults

from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from tests.unit.server.broker.sim_broker import SimBroker

PATH = "/etc/broker.properties"
FILE = b"# ours\nbrokerName=broker-a\nfileReservedTime=72\n\n# the last word\ndeleteWhen=04\n"


def update(text: str) -> RemotingCommand:
    return RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())


def a_broker() -> SimBroker:
    broker = SimBroker()
    broker.host.disk.replace(PATH, FILE)
    broker.configuration.config_file = PATH
    return broker.start()


def test_changed_keys_are_in_the_file_before_the_answer() -> None:
    """Comments, order and all else stay; the old file is kept beside it."""
    broker = a_broker()
    answer = broker.call(update("fileReservedTime=48\nregionId=West\nnobodyKnows=1\n"))
    assert answer.code == ResponseCode.SUCCESS
    assert broker.host.disk.read_bytes(PATH) == FILE.replace(b"=72", b"=48") + b"regionId=West\n"
    assert broker.host.disk.read_bytes(f"{PATH}.bak") == FILE
    assert broker.configuration.store.file_reserved_time == 48
    broker.stop()


def test_changes_at_the_same_time_are_all_kept() -> None:
    """Each reads the file that the one before it wrote; a stop waits for the last."""
    broker = a_broker()
    texts = [f"fileReservedTime={hours}" for hours in range(20)] + ["regionId=East"]
    waiting = gatherResults([broker.ask(update(text)) for text in texts], consumeErrors=True)
    broker.world.clock.run_while(lambda: broker.configuration.broker.region_id != "East", 10)
    broker.stop()
    assert broker.host.worker.outstanding == 0
    assert broker.host.disk.read_bytes(PATH) == (
        FILE.replace(b"Time=72", b"Time=19") + b"regionId=East\n"
    )
    waiting.addErrback(lambda _: None)


def test_what_may_not_change_leaves_the_file_alone() -> None:
    broker = a_broker()
    answer = broker.call(update("fileReservedTime=48\nlistenPort=1\n"))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "listenPort" in (answer.remark or "")
    assert broker.host.disk.read_bytes(PATH) == FILE
    broker.stop()


def test_a_disk_that_refuses_leaves_the_change_in_effect() -> None:
    """Until the next start; the next change tries again."""
    broker = a_broker()
    broker.host.disk.is_full = True
    assert broker.call(update("fileReservedTime=48")).code == ResponseCode.SUCCESS
    assert broker.configuration.store.file_reserved_time == 48
    assert broker.host.disk.read_bytes(PATH) == FILE
    broker.host.disk.is_full = False
    assert broker.call(update("deleteWhen=05")).code == ResponseCode.SUCCESS
    assert broker.host.disk.read_bytes(PATH) == FILE.replace(b"=04", b"=05")
    broker.stop()


def test_without_a_file_changes_are_in_memory() -> None:
    broker = SimBroker().start()
    assert broker.call(update("fileReservedTime=48")).code == ResponseCode.SUCCESS
    assert broker.configuration.store.file_reserved_time == 48
    broker.stop()
