"""rmq-ha: namesrv."""
