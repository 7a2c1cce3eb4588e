"""One run, one JSON: Forebay beside its peers, every table of the documents that it answers."""
