"""Compares two logs with each other, and a store with itself, and says what is wrong, and where."""
