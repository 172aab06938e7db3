"""The request processors of a broker: one class a subject, one method a request code.

A method gets the channel and the request, and returns the response or a Deferred of it. `routes()`
of a processor names its methods by request code; `server/broker/routes.py` adds them to the ports.
"""
