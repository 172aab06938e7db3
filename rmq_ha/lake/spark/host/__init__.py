"""The parts of the jobs that touch the machine: Java, sessions, files, the clock."""
