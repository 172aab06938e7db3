"""Stores that are damaged on purpose, so that whoever checks stores can be checked."""
