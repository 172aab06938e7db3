"""The data source `rocketmq`: options, schema, readers and writers."""
