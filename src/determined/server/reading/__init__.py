"""What rows of the store say, in the words of the page's answers: for routes that need more than a few lines."""
