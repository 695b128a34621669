"""What of a repository matters for a task: an order of its files, and a short map of them."""
