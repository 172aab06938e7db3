"""What operators see of each kind of journal: metrics, health, members.

`shown` is where to enter: it says which kind a broker has.
"""
