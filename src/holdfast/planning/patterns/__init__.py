"""Patterns: recipes that turn validated inputs and facts about a tree into a plan. Pure, deterministic, no model."""
