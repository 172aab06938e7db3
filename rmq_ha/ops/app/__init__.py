"""
The server processes: their command lines, health, metrics and pages.

Enter by `make.make_service`, which goes from twistd's options to a service around one server.
`foreground` is twistd under the names `rmqha-broker`, `rmqha-namesrv` and `rmqha-controller`.

- `journals/`: metrics, health and members of a pair, a DLedger group and a set of controller mode.
- `status/`: metrics and `/healthz`, read from the running server when somebody asks. A metric is in
  `catalogue.CATALOGUE`, and so in the documents, or it cannot be exported.
- `page/`: the read-only page. One timer of a `Board` feeds pure parts; lists that grow with users
  are walked in slices.
"""
