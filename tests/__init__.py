"""Tests. Shared helpers are modules: `from tests.unit.server.replication.memory_log import ...`."""
