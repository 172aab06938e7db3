"""Bytes, time, disk and network, on which all other packages build.

Nothing here knows of brokers or producers. Enter by the package that you need:

- `seams` declares `Host`, the only door to the outside world; `host` has the real one.
- `model` and `wire` have the values and their bytes in RocketMQ's protocol.
- `store_format` has the bytes of a store's files, `config` the properties files.
- `runs` has the functions of the hot paths that handle many messages at once.
- `remoting` and `tls` carry requests over connections, `acl` signs requests.
- `filter` compiles the SQL92 expressions of subscriptions.
- `timing` has deadlines, periods and long work that is done a slice a turn.
"""
