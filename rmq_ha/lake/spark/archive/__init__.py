"""
Archives cold messages in a Parquet table, every message once, and sends them back into a topic.
"""
