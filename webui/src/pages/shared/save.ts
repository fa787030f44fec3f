/** Hand a text to the browser as a file. */
export function save(name: string, text: string, type = "text/plain"): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  // The browser has read the address by then; holding it would keep the text in memory.
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
