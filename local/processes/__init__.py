"""Child processes that end with this one."""
