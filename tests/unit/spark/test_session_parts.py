"""Sessions without Spark: settings."""

from rmq_ha.spark.host.session import defaults, is_local


def test_on_a_cluster_only_what_results_depend_on_is_set() -> None:
    assert set(defaults("spark://host:7077")) == {"spark.sql.session.timeZone"}
    assert [is_local(m) for m in ("local", "local-cluster[1,1,1]", "yarn")] == [True, True, False]
