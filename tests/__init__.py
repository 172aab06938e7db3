"""Tests. What several use is a module beside them: `from tests.unit.ha.memory_log import ...`."""
