"""Delayed messages: how they wait, how they are delivered, and how a start finds out which of them
were delivered.

Enter at `schedule.ScheduleMessageService`.
"""
