"""Timer messages: delays of any length, and their recall. The commit log alone decides.

Enter at `timers.TimerMessageService`.
"""
