"""Cold messages as a Parquet table, every message once; and back into a topic."""
