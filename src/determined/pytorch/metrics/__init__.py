"""From the result of a batch to one reduced value: averages over batches and ranks, and metric reducers."""
