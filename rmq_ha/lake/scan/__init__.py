"""Stores read, and held against each other and themselves, with numpy and Arrow: without Spark."""
