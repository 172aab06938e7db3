"""rmq-ha: remoting."""
