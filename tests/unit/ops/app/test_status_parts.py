"""The pieces below the pages: the greatest lags, the reactor's lag, brokerStatus's numbers."""

from twisted.internet.task import Clock

from rmq_ha.ops.app.status.catalogue import CATALOGUE
from rmq_ha.ops.app.status.exporter import collect_runtime
from rmq_ha.ops.app.status.lags import SLICE, GroupLags
from rmq_ha.ops.app.status.samples import MetricKind, Samples
from rmq_ha.ops.app.status.server import WINDOW_S, ReactorLag


def test_the_greatest_lags_are_found_within_some_scrapes() -> None:
    lags = {f"t@g{number}": number for number in range(5 * SLICE)}
    measured: list[str] = []

    def lag_of(key: str) -> int:
        measured.append(key)
        return lags[key]

    groups = GroupLags(3, lag_of)
    for _ in range(5):
        measured.clear()
        found = groups.measure(lags)
        assert len(measured) <= SLICE + 3
    top = 5 * SLICE - 1
    assert found == [(top, f"t@g{top}"), (top - 1, f"t@g{top - 1}"), (top - 2, f"t@g{top - 2}")]


def test_a_pair_that_is_gone_is_not_told_and_a_new_one_is_found() -> None:
    lags = {"t@a": 5, "t@b": 3}
    groups = GroupLags(1, lambda key: lags[key])
    assert groups.measure(lags) == [(5, "t@a")]
    del lags["t@a"]
    lags["t@c"] = 4
    assert groups.measure(lags) == [(4, "t@c")]


def test_a_key_that_is_none_is_left_out() -> None:
    assert GroupLags(5, lambda key: None).measure({"odd": 1}) == []


def test_a_late_timer_is_the_reactors_lag_and_is_forgotten_in_time() -> None:
    clock = Clock()
    lag = ReactorLag(clock)  # type: ignore[arg-type]
    lag.start()
    clock.advance(0.5)
    assert lag.worst_seconds == 0.0
    clock.advance(3.5)  # 3 s late
    assert lag.worst_seconds == 3.0
    assert dict(lag.histogram.cumulative())[0.0005] == 1
    for _ in range(int(4 * WINDOW_S)):
        clock.advance(0.5)
    assert lag.worst_seconds == 0.0
    lag.stop()
    assert clock.getDelayedCalls() == []


def test_numbers_of_broker_status_that_are_missing_or_odd_are_left_out() -> None:
    class Labels(dict[str, str]):
        def __missing__(self, key: str) -> str:
            return "x"

    samples = Samples(CATALOGUE, Labels())
    collect_runtime(
        samples,
        {
            "putTps": "1.5 2.5",
            "commitLogMaxOffset": "12",
            "commitLogMinOffset": "soon",
            "putMessageDistributeTime": "[<=0ms]:3 [0~10ms]:4 [new]:9 ",
        },
    )
    found = {family.name: family.samples[0].value for family in samples.families()}
    assert found == {
        "rocketmq_brokeruntime_put_tps10": 1.5,
        "rocketmq_brokeruntime_put_tps60": 2.5,
        "rocketmq_brokeruntime_commitlog_maxoffset": 12.0,
        "rocketmq_brokeruntime_pmdt_0ms": 3.0,
        "rocketmq_brokeruntime_pmdt_0to10ms": 4.0,
    }


def test_counters_are_named_as_prometheus_wants_them() -> None:
    for name, described in CATALOGUE.items():
        if described.kind is MetricKind.COUNTER:
            assert name.endswith("_total"), name
        assert described.unit
        assert described.meaning
