"""For all tests: hypothesis measures no time, as the machine may be busy with something else."""

from hypothesis import settings

settings.register_profile("rmq-ha", deadline=None)
settings.load_profile("rmq-ha")
