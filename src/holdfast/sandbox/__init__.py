"""Other people's processes: started in one place, bounded, and gone when we are done with them."""
