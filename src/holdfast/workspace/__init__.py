"""The user's bytes: read them exactly, change them all or not at all."""
