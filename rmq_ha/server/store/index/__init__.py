"""Which messages have a key: `index.IndexService`, and the files that it is made of."""
