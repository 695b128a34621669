"""Try a plan without touching anything, and say exactly what it would do."""
