"""/metrics and /healthz of a running server."""
