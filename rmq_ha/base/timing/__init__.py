"""When things are done: deadlines, periods, and long work a slice a turn. The clock is given."""
