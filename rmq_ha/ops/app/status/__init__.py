"""What operators see of a running server: /metrics, /healthz."""
