"""Two logs against each other, and a store against itself: what is wrong, and where."""
