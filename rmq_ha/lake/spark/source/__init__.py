"""The data source `rocketmq`: options, schema, and what reads and writes."""
