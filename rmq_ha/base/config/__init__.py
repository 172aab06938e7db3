"""The properties file: keys, defaults, ranges, and what `--check` says about them.

Enter by `load`, which reads a file into a configuration of dataclasses. `fields.key` declares each
key once. A key that may change while a broker runs is read where it is used, never copied.
"""
