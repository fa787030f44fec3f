// Applies the remembered theme and density before the first paint, so that nothing flashes.
try {
  for (const name of ["theme", "density"]) {
    const value = localStorage.getItem(`resolute.${name}`);
    if (value) document.documentElement.dataset[name] = JSON.parse(value);
  }
} catch {
  // Storage is refused or holds something else: the system's theme is fine.
}
