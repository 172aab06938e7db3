"""A store directory as it lies on a disk or in a bucket, read without a broker."""
