"""What the jobs ask of the machine: Java, sessions, files, the clock."""
