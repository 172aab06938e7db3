"""Timer messages: delivers messages after delays of any length, and takes them back before.

Which messages wait follows from the records of the commit log alone, so all replicas agree.

Enter at `timers.TimerMessageService`.
"""
