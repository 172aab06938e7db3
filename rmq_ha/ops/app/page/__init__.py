"""The page on the status port: what a server knows of itself and its cluster, to look at."""
