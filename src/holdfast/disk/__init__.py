"""The kernel, spoken to carefully: atomic replace, sync, locks, confined opens."""
