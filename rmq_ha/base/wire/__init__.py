"""RocketMQ's commands, headers and bodies as bytes and JSON.

`command.RemotingCommand` is one frame; `frame.FrameReader` cuts a stream into frames. `codes` has
the request and response codes. `send_header` decodes the header of a send straight from its bytes.
Spec: remoting.md.
"""
