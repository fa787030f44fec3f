"""A store's database: where it is, how it is opened, and what its errors mean."""
