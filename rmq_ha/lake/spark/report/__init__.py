"""rmq-ha: what a job leaves behind for people and programs."""
