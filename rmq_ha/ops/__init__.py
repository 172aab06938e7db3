"""What runs a server, looks at it, and mends it.

- `app`: twistd plugins and foreground commands, health, metrics and the page.
- `admin`: `rmqha-admin`, the commands for people and scripts, and `doctor`.
- `offline`: a store as it lies on the disk, also while its broker is stopped.
- `offsets`: "is it safe to fail over now?", for one pair, without Spark.
"""
