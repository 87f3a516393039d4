"""The command line `fairbox`: nouns, then verbs; thin over the library."""
