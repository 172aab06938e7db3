"""
RocketMQ in Spark: data sources over brokers and stores, and the jobs that judge them.

Spark moves, sorts and counts. rmq-ha's Python turns bytes into columns and judges single messages,
on the executors. Enter by `cli` (`rmqha-spark`) and `source/datasource`.

- `source/`: a range is fixed before it is read; read again, it has the same messages or fails.
- `offsets/`, `replica/`, `audit/`, `archive/`: one job each, with its options in `command.py`. Each
  answers with a `JobResult`: findings, a verdict, numbers, tables and plots.
- `running` is the frame of a job: session, exit code, output. `report/` makes the page.
- `host/` is the only place that touches files, processes and the clock.
"""
