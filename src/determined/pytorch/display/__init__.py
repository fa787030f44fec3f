"""What a person sees of a fit: console lines, the progress bar, and TensorBoard files."""
