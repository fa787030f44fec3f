"""A trial becomes processes somewhere: what a launcher promises is in `base`, and there is a module for each kind."""
