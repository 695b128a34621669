"""The order of things: which stage comes after which, and what happens when one fails."""
