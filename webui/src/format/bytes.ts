/** A size in powers of 1024, as the command line prints it: "512 B", "1.5 KiB", "3.2 GiB". */
export function bytes(size: number): string {
  if (size < 1024) return `${size} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let value = size / 1024;
  let place = 0;
  // 1023.96 would round to 1024.0, which is the next unit's 1.0.
  while (value >= 1023.95 && place < units.length - 1) {
    value /= 1024;
    place += 1;
  }
  return `${value < 100 ? value.toFixed(1) : value.toFixed(0)} ${units[place]}`;
}
