"""Access control: accounts of `plain_acl.yml`, and the permissions that each request code needs.

The entry point is `service.PlainAccessControl`, which the access plugin `plain` makes. All files
are read in the worker into one `rules.Rules`, which is replaced as a whole: one state of the files
judges a request. `Rules.check` decides and gives the request its `Grant`, so a request is validated
once. `table` has one row for each request code. A new route needs a row there, a request in
`tests/unit/server/broker/guarded.py`, and, if it changes something, an act in
`broker/audit_acts.py`.
"""
