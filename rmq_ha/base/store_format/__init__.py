"""The bytes of a store's files as values, and back: records, units of queues, index items,
checkpoints.

No module here keeps state or does I/O. `commitlog` has one record; `rmq_ha.base.runs` has many
records side by side. `consumequeue`, `consumequeue_ext`, `index`, `checkpoint`, `dledger`,
`deleted_queues` and `java_timers` have the other files. Spec: store.md; dledger.md, chapter 3.
"""
