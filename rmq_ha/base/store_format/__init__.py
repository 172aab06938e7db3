"""The bytes of a store's files as values, and back: records, units of queues, index items,
checkpoints.

No module here keeps state or does I/O. `commitlog` has the record and `run` several records side by
side; `walk` reads them in large steps. `consumequeue`, `consumequeue_ext`, `index`, `checkpoint`
and `dledger` have the other files. Spec: store.md; dledger.md, chapter 3.
"""
