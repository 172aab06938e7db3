"""
`rmqha-admin doctor`: the facts of a cluster, the rules that judge them, and the remedy of each
fault.
"""
