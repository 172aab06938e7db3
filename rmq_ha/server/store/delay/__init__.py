"""Delayed messages: how they wait, when they go on, and what a start knows of both.

Enter at `schedule.ScheduleMessageService`.
"""
