"""TLS for every link: the files, whom to believe, and the layer between transport and protocol."""
