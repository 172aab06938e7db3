"""
Programs that run a server, look at it, and mend it.

- `app`: twistd plugins and foreground commands, health, metrics and the page.
- `admin`: `rmqha-admin`, the commands for people and scripts, and `doctor`.
- `offline`: reads a store on the disk, also while its broker is stopped.
- `offsets`: "is it safe to fail over now?", for one pair, without Spark.
"""
