"""The user's environment: interpreters, packages and tools, found by looking at files, and shown read-only."""
