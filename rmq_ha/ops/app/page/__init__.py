"""The page on the status port: shows the state of a server and its cluster."""
