"""Bytes to values and back: of records, units, index files, checkpoints. Nobody's state is here."""
