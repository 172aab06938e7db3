"""Half messages that nobody has settled: whom to ask, how often, and when to give up."""
