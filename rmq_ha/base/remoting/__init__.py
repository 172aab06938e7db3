"""RocketMQ's remoting protocol over connections: frames in, requests to handlers, answers out.

Enter by `server.RemotingServer` and `client.RemotingClient`. A request handler is
`handler(channel, RemotingCommand)`; it returns a `RemotingCommand`, a Deferred of one, or None for
no answer. It refuses with `RequestRejected(code, remark)`; any other exception becomes code 1.

- `dispatcher.RequestDispatcher` knows the handlers by request code. Consecutive sends of one chunk
  (a *run*) go to the handler of runs as one call. Validators see each request before either does.
- `channel.Channel` is one connection as handlers see it. `is_full` says that the peer does not
  read; code that pushes messages leaves such a peer out.
- `calls.Calls` is the interface of a client, as its callers use it; `SigningCalls` signs the
  requests to another `Calls`.

Spec: remoting.md.
"""
