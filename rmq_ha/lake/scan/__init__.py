"""
Reads stores, and compares them with each other and with themselves, in numpy and Arrow, without
Spark.

- `log/` finds records in any buffer and makes Arrow batches of the columns that are asked for. The
  body of a pull is read by the same code, so file and wire are one table.
- `store/` opens a store at a URI and divides it into splits, which may be read in any order.
- `replica/` compares two stores; `replica/verifying.verify` is the way in.
- `fleet/` keeps facts of many stores and judges a broker's replicas by them.
- `ledger_files`, `ledger_rows` and `ledger_compare` compare what producers and consumers recorded
  with the records of the log.
"""
