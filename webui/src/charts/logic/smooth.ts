// Smoothing as TensorBoard does it: an exponential mean, corrected for its start, so that the first points are not dragged to zero.

/** Points that are null stay null and leave no trace in what follows. `weight` 0 returns the values as they are. */
export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  if (weight <= 0) return [...values];
  const keep = Math.min(weight, 0.999);
  let mean = 0;
  let left = 1; // share of the mean that is still the zero it began with
  return values.map((value) => {
    if (value === null) return null;
    mean = mean * keep + value * (1 - keep);
    left *= keep;
    return mean / (1 - left);
  });
}
