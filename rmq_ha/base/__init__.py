"""Bytes, time, disk and network: what all other houses stand on."""
