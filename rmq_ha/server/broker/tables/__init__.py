"""The tables of a broker besides its messages: topics, groups, offsets, filters, clients and locks.

A table with a file extends `PersistedTable`. `broker_tables` names all of them."""
