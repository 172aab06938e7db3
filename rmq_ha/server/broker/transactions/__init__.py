"""Half messages that no producer has settled: whom to ask, how often, and when to give up."""
