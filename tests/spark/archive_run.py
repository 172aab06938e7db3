"""A process that archives a store, to be killed. Arguments: store, archive, messages of a batch."""

import sys

from rmq_ha.lake.spark.archive.job import ArchiveRequest, archive
from rmq_ha.lake.spark.host.session import start_session
from rmq_ha.ops.offsets.places import StorePlace
from tests.spark import lakes
from tests.spark.conftest import RUNS_ONCE
from tests.spark.jobs import FakeJob


def main() -> None:
    """Until it is done, or somebody kills us."""
    store, to, most = sys.argv[1:]
    spark = start_session("to be killed", master="local[1]", conf=RUNS_ONCE | lakes.SETTINGS)
    print("warm", flush=True)
    sys.stdin.readline()
    asked = ArchiveRequest(place=StorePlace(store), to=to, form=lakes.FORMAT, most=int(most))
    archive(FakeJob(spark), asked)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
