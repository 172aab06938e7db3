"""The message store: a commit log, and the queues and the index that find messages in it.

Enter by `message_store.DefaultMessageStore`; the broker calls it. Its main calls are:

- `put_message(Message)` and `put_batch(MessageBatch)` return a Deferred that never fails and fires
  once with a `PutMessageResult`.
- `put_many(messages, done)` appends all messages with one write, then calls `done` once, when flush
  and replication of the last one are decided. `put_drafts` is the same for the hot path of sends.
- `get_message(group, topic, queue_id, queue_offset, max_nums, filter)` reads for a pull.
- `record_at`, `query`, `offset_by_time`, `max_offset_in_queue` answer the other questions.
- `set_tail_aside(end, why)` cuts the log at `end`, and keeps a copy of the cut part in `setaside/`.

A put goes through these steps, each in one module::

    put -> log/append (bytes) -> log/commitlog (one pwrite) -> settle (flushed? replicated?)
                                     |                           |
                                     |                           +-> the answer
                                     +-> log/dispatch -> queues, index -> held pulls wake

The records that one reactor turn appended are handled together in the next turn: one replication
frame, one dispatch, one fdatasync (`turns`). Every record is judged before it is handed out
(`reading/damage`); a unit that leads to no record is mended from the log or left out alone, and
counted.

The folders stand on each other in the order of `ROOMS` in `tests/test_house.py`. The store knows
replication only as a `journal.Journal`. Spec: store.md.
"""
