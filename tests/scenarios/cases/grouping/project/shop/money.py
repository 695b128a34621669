"""Money is a number of cents."""
