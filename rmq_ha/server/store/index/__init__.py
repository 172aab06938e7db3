"""Finds messages by key: `index.IndexService`, and the files of which it consists."""
