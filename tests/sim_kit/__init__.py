"""
The simulator: runs whole clusters on a simulated clock, with faults that a seed draws and a judge
of the promises.
"""
