"""A master and its slaves compared, in plain Python: "is it safe to fail over now?"

Enter by `command`. `pairing` brings the queues of both sides together, `rules` judges them,
`verdict` gives the answer. `rmqha-admin verify-offsets` and the job of Spark use the same rules.
"""
