"""What runs a server, looks at it and mends it."""
