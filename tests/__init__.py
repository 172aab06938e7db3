"""Tests. Helpers of several are modules: `from tests.unit.server.ha.memory_log import ...`."""
