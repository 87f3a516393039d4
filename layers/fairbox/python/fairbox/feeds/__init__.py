"""Topics for people's screens: publishing."""
