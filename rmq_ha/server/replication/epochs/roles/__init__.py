"""The broker's conversation with its controllers: its id, its lease, and the role that it gets.

The entry point is `controller_client.ControllerClient`, which puts `manager.ReplicasManager` on
real connections. Times, answers and notices go into the manager, and `actions` come out.
`lease.Lease` says until when no other master can have been elected. `resignation.Resignation` hands
the lead over when the disk of a master is full, and `departure.Departure` before a master stops.

The roles (`actions.Role`), and the actions that change them::

      +------------------------- Follow -------------------------+
      |                                                          v
    none --------- Lead ---------> master -------- Follow -----> slave
      ^                             |  ^                          |
      +-- StepDown, or `failed` ----+  +----------- Lead ---------+

A master accepts messages only while its lease holds. Without answers of the controllers the lease
ends, and the broker stays `master` but refuses puts.

Spec: controller.md, chapters 3 and 5.
"""
