"""What the server answers and is asked, one module of models per noun. The page's types are made from these."""
