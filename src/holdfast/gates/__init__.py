"""Gates: may this change land? Pure functions over evidence; they judge and never act."""
