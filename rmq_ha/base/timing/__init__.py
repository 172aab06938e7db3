"""Deadlines, periods, and long work that is done a slice a turn.

Every class here gets its clock from the caller. Enter by the module that you need: `periodic`
repeats a function, `timer` follows a deadline, `slices` and `one_by_one` divide and order work, and
`masterless_time` measures how long a slave is alone.
"""
