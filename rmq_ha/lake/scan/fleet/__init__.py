"""
Facts of stores, kept as files by which a whole fleet can be judged without reading a log again.
"""
