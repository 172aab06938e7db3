"""
Metrics, health and members of each kind of journal, as operators see them.

Enter by `shown`, which says which kind a broker has.
"""
