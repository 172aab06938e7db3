"""The simulator: whole clusters on a simulated clock, from seeds, with faults and a judge."""
