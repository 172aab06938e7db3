"""What a broker keeps: messages in a log, and what finds them there again.

Enter at `default.DefaultMessageStore`, which processors, plugins and tests call. Whoever writes a
journal reads `journal` and `journal_base`. Each folder is a room and stands on those before it:
`format`, `log`, `queues`, `index`, `delay`, `reading`, `local`.
"""
