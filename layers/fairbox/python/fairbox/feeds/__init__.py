"""Topics for people's screens: publishing, asking, tokens."""
