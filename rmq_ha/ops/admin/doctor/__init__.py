"""`rmqha-admin doctor`: facts of a cluster, the rules that judge them, and what is to be done."""
