"""Property tests here are the same in every run and do not fail because a machine is busy."""

from hypothesis import settings

settings.register_profile("measures", deadline=None, derandomize=True, database=None)
settings.load_profile("measures")
