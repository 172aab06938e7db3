"""The parts of access control that clients and servers share: signatures of requests, and patterns
of addresses.

`signature` has RocketMQ's signature and `signed_time` the second one of rmq-ha. `addresses` matches
peers, and `refusals` decides which refusals are logged. Spec: remoting.md, chapter 10.
"""
