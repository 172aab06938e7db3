"""The job `archive`: cold messages to Parquet, every message once; and how to read them."""
