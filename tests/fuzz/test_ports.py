"""A short while of what `ports.py` does, to a name server and a master: nothing moves."""

from pathlib import Path


def test_strangers_move_nothing(tmp_path: Path) -> None:
    from tests.fuzz.ports import fuzz  # takes a second, in every process that collects tests
    from tests.fuzz.servers import Cluster

    cluster = Cluster(tmp_path, is_whole=False)
    try:
        report = fuzz(cluster, 600, 1)
        assert not report.faults, "\n".join(report.faults)
        assert len(report.sent) == 6
        assert sum(report.sent.values()) >= 600
        before = cluster.state()
        cluster.send(cluster.brokers[0])
        assert cluster.state() != before, "it would not see what it looks for"
    finally:
        cluster.stop()
