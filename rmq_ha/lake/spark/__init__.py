"""RocketMQ in Spark: data sources over brokers and stores, and jobs that judge them."""
