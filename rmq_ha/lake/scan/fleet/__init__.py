"""Facts of stores, kept where a whole fleet can be judged by them without reading a log again."""
