"""The only way from a sandbox to a model: holds the key, counts, stops at the budget."""
