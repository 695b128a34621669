"""Nouns: frozen, typed, without input or output, standard library only."""
